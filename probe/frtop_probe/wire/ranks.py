"""A rank: its process, its job, and what its ring says about it."""

from __future__ import annotations

from frtop_probe.wire.values import Int, Real, Value


class Job(Value, frozen=True):
    """The identity of a job: ranks with the same identity belong together."""

    master_addr: str
    master_port: Int
    world_size: Int
    run_id: str = ""
    attempt: Int = 0
    nonce: str = ""
    name: str = ""  # the program's name, for people


class Identity(Value, frozen=True):
    """The process that a ring belongs to. `rank` is -1 until the program sets it."""

    pid: Int
    start_ticks: Int
    rank: Int
    local_rank: Int
    job: Job
    argv: tuple[str, ...] = ()
    cwd: str = ""
    torch: str = ""
    python: str = ""
    started_ns: Int = 0
    main_ident: Int = 0
    recorder_tid: Int = 0
    record: str = ""  # folder for the black box; "" if the job is not recorded
    settings: tuple[tuple[str, str], ...] = ()  # of torch and transports, from the environment
    prepared: bool = True  # False: no recorder; it is seen only from outside
    c10d_readable: bool = True  # False: nor is c10d's state readable: no op numbers
    nccl: str = ""  # its version; "" if torch is built without it, or does not say


class DataLoaderFetch(Value, frozen=True):
    """The last DataLoader fetch; when `end_ns` < `begin_ns`, the rank is inside it now.

    `worker` is the index of the awaited worker: -1: unknown, -2: the rank itself loads.
    """

    begin_ns: Int
    end_ns: Int
    worker: Int = -1
    worker_pid: Int = 0
    workers: Int = 0


class RankStatus(Value, frozen=True):
    """The ring's cells that change constantly. `state` is a `ring.layout.State`."""

    state: Int
    heartbeat_ns: Int
    ops: Int
    step: Int = 0
    step_ns: Int = 0
    fetch: DataLoaderFetch | None = None
    side_lost: Int = 0
    pending_lost: Int = 0
    hook_errors: Int = 0


class ExitInfo(Value, frozen=True):
    """How a rank's process ended. Exit code and signal are both None if unknown.

    `clean` says that the recorder saw the interpreter exit normally.
    """

    at_ns: Int
    exit_code: Int | None = None
    signal: Int | None = None
    clean: bool = False
    oom_kills: Int = 0  # the rise of the cgroup's counter around that time


class TraceFrame(Value, frozen=True):
    """One frame; lists begin with the innermost. `source` is the line's text, if it was read.

    `variables` are names and values as text, if the dump has them. A `native` frame is C or C++:
    `file` is its library, `line` is 0.
    """

    function: str
    file: str
    line: Int
    module: str = ""
    source: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    native: bool = False


class UncaughtException(Value, frozen=True):
    """An uncaught exception. `main` says that it ended the program, not only a thread."""

    kind: str
    text: str
    thread: str
    main: bool
    at_ns: Int
    frames: tuple[TraceFrame, ...] = ()


class BlockSums(Value, frozen=True):
    """Sums over consecutive blocks of `size` ops of a group, beginning with op `first`.

    Four bytes per block, see `consistency.checksums`. `pairs` is empty when all of its sums are
    0. Only sums of the same `rule` can be compared (`consistency.signatures.RULE`).
    """

    group: Int
    first: Int
    size: Int
    sums: bytes
    pairs: bytes = b""
    rule: Int = 1


class Transport(Value, frozen=True):
    """A transport past c10d that a rank has at hand, and its sign. frtop does not see its ops."""

    name: str
    sign: str = ""


class ReportedValues(Value, frozen=True):
    """Values that the job reported on a rank under one name (`frtop_probe.report`), oldest first.

    `times`: how often the name was reported in this step, up to the value. `values` that are not
    finite, or beyond 1e300, are texts: "nan", "inf", "-inf", "1.5e+305". Every value from step
    `first` on was read, and `not_finite` of all values were not finite.
    """

    name: str
    steps: tuple[Int, ...] = ()
    values: tuple[Real | str, ...] = ()
    times: tuple[Int, ...] = ()
    first: Int = 0
    not_finite: Int = 0
