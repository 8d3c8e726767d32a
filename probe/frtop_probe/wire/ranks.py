"""A rank: which process of which job it is, and what its ring tells of it."""

from __future__ import annotations

from msgspec import Struct


class Job(Struct, frozen=True, array_like=True):
    """The identity of a job: two ranks with the same one belong together."""

    master_addr: str
    master_port: int
    world_size: int
    run_id: str = ""
    attempt: int = 0
    nonce: str = ""
    name: str = ""  # the program's name, for people


class Identity(Struct, frozen=True, array_like=True):
    """The process a ring belongs to. `rank` is -1 until the program has set it."""

    pid: int
    start_ticks: int
    rank: int
    local_rank: int
    job: Job
    argv: tuple[str, ...] = ()
    cwd: str = ""
    torch: str = ""
    python: str = ""
    started_ns: int = 0
    main_ident: int = 0
    recorder_tid: int = 0
    record: str = ""  # folder for the black box, "" when the job is not recorded
    settings: tuple[tuple[str, str], ...] = ()  # of torch and transports, from the environment
    prepared: bool = True  # False: it has no recorder, and is seen from outside only
    books: bool = True  # False: nor can torch's books be read, so nothing tells its numbers


class DataLoaderFetch(Struct, frozen=True, array_like=True):
    """The last DataLoader fetch; when `end_ns` < `begin_ns`, the rank is inside it now.

    `worker` is the index of the worker waited for: -1 unknown, -2 the rank itself loads.
    """

    begin_ns: int
    end_ns: int
    worker: int = -1
    worker_pid: int = 0
    workers: int = 0


class RankStatus(Struct, frozen=True, array_like=True):
    """The ring's cells that change all the time. `state` is a `ring.layout.State`."""

    state: int
    beat_ns: int
    ops: int
    step: int = 0
    step_ns: int = 0
    fetch: DataLoaderFetch | None = None
    side_lost: int = 0
    pending_lost: int = 0
    hook_errors: int = 0


class ExitInfo(Struct, frozen=True, array_like=True):
    """How a rank's process ended. Exit code and signal are both None when unknown.

    `clean` says that the recorder saw the interpreter exit normally.
    """

    at_ns: int
    exit_code: int | None = None
    signal: int | None = None
    clean: bool = False
    oom_kills: int = 0  # the rise of the cgroup's counter around that time


class TraceFrame(Struct, frozen=True, array_like=True):
    """One frame; lists of them begin with the innermost. `source` is the line's text, if read.

    `variables` are names and values as text, if the dump has them. A `native` frame is one of C or
    C++: `file` is its library, `line` 0.
    """

    function: str
    file: str
    line: int
    module: str = ""
    source: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    native: bool = False


class UncaughtException(Struct, frozen=True, array_like=True):
    """An uncaught exception. `main` says that it ended the program, not only a thread."""

    kind: str
    text: str
    thread: str
    main: bool
    at_ns: int
    frames: tuple[TraceFrame, ...] = ()


class BlockSums(Struct, frozen=True, array_like=True):
    """Sums over consecutive blocks of `size` ops of a group, beginning with op `first`.

    Four bytes per block, see `consistency.checksums`. `pairs` is empty when all of its sums are
    0. Only sums of the same `rule` can be compared (`consistency.signatures.RULE`).
    """

    group: int
    first: int
    size: int
    sums: bytes
    pairs: bytes = b""
    rule: int = 1


class Transport(Struct, frozen=True, array_like=True):
    """A transport past c10d that a rank has at hand, and by which sign: nobody observes it."""

    name: str
    sign: str = ""
