"""Every message between agent and operator.

Messages are msgpack arrays, one per struct; msgspec checks their types while decoding. Every
ZeroMQ message is one frame that begins with `PROTOCOL`; any other beginning is another
protocol. One frame only, because libzmq aborts the process when a connection ends between two
frames of a message that is being received (`!_more`, fq.cpp).

Evolution: fields are only appended and have defaults; types never change; unknown trailing
fields are ignored. So old screens read new agents, and new screens old agents. The bytes
under `tests/wire/bytes` and the files under `tests/export/old` prove it.

Times are `time.monotonic_ns()` of the sending host, ranks are global ranks. None in a field
that could be known means unknown: neither equal to nor different from anything.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

PROTOCOL: Final = b"frtop1"
MAX_MESSAGE: Final = 64 * 1024 * 1024
"""Upper bound on a message in bytes; also the limit of the sockets."""
UNTIMED: Final = 256
"""Flag of a row: `took_ns` says that the op is over, and not how long it took."""
OF_OTHERS: Final = ": not looked at"
"""In a note about a host: other users have ranks there. After "; " comes whom to ask for what."""
BY_ROOTS_LIST: Final = "by root's list our key sees the ranks of "
"""Beginning of a note about a host whose root serves all users, to a key that sees only some."""
NO_SEARCH: Final = "no search for jobs"
"""Begins the note of a host on which nobody could look for jobs."""
LEFT_GROUPS: Final = "it has destroyed its process groups"
"""Note of a rank without a recorder, whose books had groups and have none."""


class TensorSpec(Struct, frozen=True, array_like=True):
    """`count` consecutive tensors with the same dtype, shape and device."""

    dtype: str
    shape: tuple[int, ...]
    count: int = 1
    device: str = "cpu"


class Signature(Struct, frozen=True, array_like=True):
    """What an op does, apart from when and where. `peer` and `root` are global ranks.

    `members` is set only for calls that make groups: the ranks that must make the call (folded).
    """

    kind: str
    reduce: str | None = None
    root: int | None = None
    peer: int | None = None
    tag: int | None = None
    inputs: tuple[TensorSpec, ...] | None = None
    outputs: tuple[TensorSpec, ...] | None = None
    in_splits: tuple[int, ...] | None = None
    out_splits: tuple[int, ...] | None = None
    members: str | None = None


class Site(Struct, frozen=True, array_like=True):
    """The line that issued an op: the innermost frame outside torch."""

    file: str
    line: int
    function: str


class Op(Struct, frozen=True, array_like=True):
    """One op of one rank. `group` is the rank's own id of the group (0: none).

    `done_ns` is 0 while the op is pending, and negative when it failed at that time. `thread` is
    the pthread ident, as in py-spy's dumps. `usual_ns` is the smoothed wait of the call site over
    `usual_count` ops. `timeout_ms` 0 means the group's timeout. `started_ns` is when its device
    was seen to work on it; 0: not seen, or not observed. Where it is not `dated`, it was issued
    at `issued_ns` or before: that is when it was first seen. Where it is not `timed`, `done_ns`
    says that it is over, and not when it ended; where it is `late`, that it ended by then.
    `wait_ns` is when a thread began to wait for it, negative when the last wait ended; 0: nobody
    has waited, or nobody saw it. `on_device`: the call that issues it does not wait for it; once
    that has returned, it is `enqueued`. Both are only told by a recorder.
    """

    sequence: int
    group: int
    number: int
    signature: Signature | None
    site: Site | None
    issued_ns: int
    done_ns: int = 0
    thread: int = 0
    sync: bool = False
    p2p: bool = False
    tracked: bool = True
    pseudo: bool = False
    timeout_ms: int = 0
    usual_ns: int = 0
    usual_count: int = 0
    started_ns: int = 0
    dated: bool = True
    timed: bool = True
    late: bool = False
    wait_ns: int = 0
    on_device: bool = False
    enqueued: bool = False

    @property
    def pending(self) -> bool:
        return self.done_ns == 0


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


class Group(Struct, frozen=True, array_like=True):
    """A process group as one rank knows it; `ranks` is folded (`0-3,8`).

    `exact` says that ops were counted from the group's creation, so their numbers can be compared
    between ranks. `epoch` counts re-creations with the same name and members. A group is `gone`
    when this rank has destroyed it; how far the rank came in it is still known then. `blind` is why
    the recorder does not see what its device does with its ops (`recorder.device_front`); "" where
    it sees that, or they run on no device. `error` is the backend's, "" for none.
    """

    id: int
    name: str
    description: str
    backend: str
    ranks: str
    exact: bool = True
    epoch: int = 0
    timeout_s: float = 0.0
    gone: bool = False
    blind: str = ""
    error: str = ""


class GroupProgress(Struct, frozen=True, array_like=True):
    """A rank's progress in a group: the number and time of its last op there.

    `last` is None while the group moves quickly, since it would be outdated at once. `enqueued` is
    the number of the last collective that was handed to its device, `completed` of the last one
    that the device was seen to complete, at `advanced_ns` or before; they are true while `watched`.
    """

    group: int
    number: int
    p2p: int
    issued_ns: int
    last: Op | None = None
    enqueued: int = 0
    completed: int = 0
    advanced_ns: int = 0
    watched: bool = False


class Process(Struct, frozen=True, array_like=True):
    """A process or thread as /proc shows it. `wchan` and `syscall` are the main thread's.

    Both are "" if unreadable. `state` is the process's state letter (main thread), `file` the
    target of its current read, write or similar call, `cpu_ns` user + system of all threads,
    `io_bytes` read + written (-1 unreadable), `rss` bytes. `ready_ns` is how long the main thread
    ran or was ready to run, up to its last turn (-1 unreadable).
    """

    pid: int
    state: str
    name: str = ""
    wchan: str = ""
    syscall: str = ""
    file: str = ""
    cpu_ns: int = 0
    io_bytes: int = -1
    rss: int = 0
    threads: int = 0
    children: int = 0
    parent: int = 0
    ready_ns: int = -1


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


class ThreadStack(Struct, frozen=True, array_like=True):
    """One thread of a dump. `ident` is the pthread handle, `tid` the native thread id."""

    ident: int
    tid: int
    name: str
    active: bool
    owns_gil: bool
    frames: tuple[TraceFrame, ...]


class ExitInfo(Struct, frozen=True, array_like=True):
    """How a rank's process ended. Exit code and signal are both None when unknown.

    `clean` says that the recorder saw the interpreter exit normally.
    """

    at_ns: int
    exit_code: int | None = None
    signal: int | None = None
    clean: bool = False
    oom_kills: int = 0  # the rise of the cgroup's counter around that time


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


class GpuSample(Struct, frozen=True, array_like=True):
    """A GPU at one time. None: its driver does not say, as with MIG.

    `utilization` is the percentage of time in which any kernel ran, `power_mw` in milliwatts,
    `memory_used` in bytes, `throttle` has NVML's bits of why clocks are not higher.
    """

    at_ns: int
    utilization: int | None = None
    power_mw: int | None = None
    memory_used: int | None = None
    sm_mhz: int | None = None
    throttle: int | None = None


class Gpu(Struct, frozen=True, array_like=True):
    """A GPU that a rank computes on; its figures are those of all processes on it.

    `index` is that of nvidia-smi, which CUDA's may differ from. `idle_mw` is the lowest power that
    the agent has seen of it while no kernel ran, None if it never saw that.
    """

    index: int
    uuid: str = ""
    name: str = ""
    power_limit_mw: int | None = None
    memory_total: int | None = None
    idle_mw: int | None = None
    processes: int = 0  # that compute on it, the rank among them; 0: not known
    mig: bool = False  # it is divided, and its figures are those of all parts
    error: str = ""  # why there are no figures, such as that it is lost
    samples: tuple[GpuSample, ...] = ()  # the last few, oldest first


class Gauges(Struct, frozen=True, array_like=True):
    """The devices that a rank uses. `note` says what is not known of them, and why."""

    gpus: tuple[Gpu, ...] = ()
    note: str = ""


class RankUpdate(Struct, frozen=True, array_like=True):
    """What changed about one rank; None and empty fields have not changed.

    Except `pending` and `transports`: None has not changed, empty says that there are none.
    `key` is the agent's number for the process, stable while the agent runs. In the response to
    `StateRequest`, all fields are set.
    """

    key: int
    identity: Identity | None = None
    status: RankStatus | None = None
    groups: tuple[Group, ...] = ()
    group_progress: tuple[GroupProgress, ...] = ()
    pending: tuple[Op, ...] | None = None
    pending_more: int = 0  # number of further pending ops that were left out
    process: Process | None = None
    exception: UncaughtException | None = None
    exit_info: ExitInfo | None = None
    notes: tuple[str, ...] = ()
    blocks: tuple[BlockSums, ...] = ()  # in the full state: the most recent blocks
    transports: tuple[Transport, ...] | None = None  # those past c10d, as far as known
    gauges: Gauges | None = None  # of its devices, where it has any open


class Update(Struct, frozen=True, array_like=True):
    """What changed on a host in one tick; also the host's full state on request.

    `number` counts ticks; the full state has the number of the last tick it includes. A client
    applies the updates that follow, and requests the state again when one is missing.
    """

    host: str
    instance: str  # of the agent; another instance counts from the start
    number: int
    monotonic_ns: int
    wall_ns: int
    ranks: tuple[RankUpdate, ...] = ()
    forgotten: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()  # about the host, as rings that cannot be read; ("",): none left
    version: str = ""
    full: bool = False


class StateRequest(Struct, frozen=True, array_like=True, tag="state"):
    """Requests the full state; answered with a full `Update`.

    With `read_only`, the operator gives up acting: from then on the agent refuses it on this
    connection, whatever the key's right. With `follow`, an agent that publishes nothing, because
    not everybody may see everything, sends this connection its updates (`UpdateMessage`).
    """

    id: int
    read_only: bool = False
    follow: bool = False


class SnapshotRequest(Struct, frozen=True, array_like=True, tag="look"):
    """Requests snapshots of some ranks: `/proc` of them and their descendants, the last `ops` ops.

    With `stacks`, also a non-blocking dump of their threads, and of the processes in `pids` that
    are descendants of such a rank.
    """

    id: int
    keys: tuple[int, ...]
    stacks: bool = True
    ops: int = 0
    pids: tuple[int, ...] = ()


class TimeRequest(Struct, frozen=True, array_like=True, tag="time"):
    """Requests the agent's clocks; half of the round trip bounds the error of the comparison.

    `shown` are those of its ranks without a recorder that the operator shows: the others are
    followed with less detail. None: the operator does not say.
    """

    id: int
    shown: tuple[int, ...] | None = None


class HistoryRequest(Struct, frozen=True, array_like=True, tag="history"):
    """Requests the ops that a rank's ring still has, the newest `limit` (0: all).

    With a `group` (the rank's own id of it), only that group's collectives with the numbers
    `first` to `last`. With `columns`, a history that is long may come as columns.
    """

    id: int
    key: int
    limit: int = 0
    group: int = 0
    first: int = 0
    last: int = 0
    columns: bool = False


class TensorsRequest(Struct, frozen=True, array_like=True, tag="tensors"):
    """Requests a summary of the tensors of a rank's pending op `sequence` (0: of all).

    An act, not a reading: it makes the rank work, and shows data. `devices`: a person asks, so
    memory of devices is read, too, where the job was started for that.
    """

    id: int
    key: int
    sequence: int = 0
    devices: bool = False


class DataRequest(Struct, frozen=True, array_like=True, tag="data"):
    """Requests bytes of one tensor of a pending op: `size` bytes from `offset` on. An act.

    `index` counts the tensors of the op in the order of `TensorsResponse`.
    """

    id: int
    key: int
    sequence: int
    index: int
    offset: int
    size: int


class RasRequest(Struct, frozen=True, array_like=True, tag="ras"):
    """Requests what NCCL's RAS tells of the job of a rank. An act: asking RAS has crashed jobs.

    Without `ask` the agent only looks at the rank: its NCCL, and what is in the way of asking.
    """

    id: int
    key: int
    ask: bool = False


class NativeStacksRequest(Struct, frozen=True, array_like=True, tag="native"):
    """Requests the stacks of a rank's threads with their frames of C and C++.

    An act: the rank's process stands still while they are taken, for up to some seconds. An agent
    takes those of one rank at a time, and refuses a second request meanwhile ("busy").
    """

    id: int
    key: int


Request = (
    StateRequest
    | SnapshotRequest
    | TimeRequest
    | HistoryRequest
    | TensorsRequest
    | DataRequest
    | RasRequest
    | NativeStacksRequest
)


class StackDump(Struct, frozen=True, array_like=True):
    """The stacks of one process, or why there are none.

    `error` is one of "", "refused", "gone", "deadline", "missing", "failed", and for native stacks
    also "stopped" (it was, or a debugger holds it) and "uninterruptible" (a thread in state D);
    `help` is the message for the user, with the next step.
    """

    pid: int
    threads: tuple[ThreadStack, ...] = ()
    error: str = ""
    help: str = ""


class DeadConnection(Struct, frozen=True, array_like=True):
    """A TCP connection whose peer acknowledges nothing: `10.0.0.1:4711`, `[fe80::1]:4711`.

    `queued` bytes were sent without acknowledgement, the oldest were resent `retransmits` times.
    """

    local: str
    remote: str
    queued: int = 0
    retransmits: int = 0


class Snapshot(Struct, frozen=True, array_like=True):
    """One rank at one time. `processes` has the rank first, then its descendants.

    `dead_connections` are the rank's own; `addresses` are those of its host that have connections.
    """

    key: int
    at_ns: int
    status: RankStatus | None = None
    processes: tuple[Process, ...] = ()
    dumps: tuple[StackDump, ...] = ()
    ops: tuple[Op, ...] = ()
    ops_lost: int = 0
    threads: tuple[Process, ...] = ()  # the rank's own threads; `pid` is the native thread id
    dead_connections: tuple[DeadConnection, ...] = ()
    addresses: tuple[str, ...] = ()
    ops_note: str = ""  # without a recorder: where `ops` come from, or why there are none


class HistoryRow(Struct, frozen=True, array_like=True):
    """An `Op` in a `History`: `signature` and `site` are indices into its tables from 1, 0 is none.

    `took_ns` is 0 while pending, and negative when the op failed after that time. `flags` are
    those of a ring slot (`ring.layout.Flag`), and `UNTIMED`.
    """

    sequence: int
    group: int
    number: int
    signature: int
    site: int
    issued_ns: int
    took_ns: int
    thread: int
    flags: int = 0
    pseudo: bool = False
    timeout_ms: int = 0


class HistoryColumn(Struct, frozen=True, array_like=True):
    """One field of consecutive rows: the `first` value, then differences from row to row.

    Each has `width` bytes (1, 2, 4 or 8), little-endian and signed; 0: all values are equal.
    """

    first: int
    width: int = 0
    differences: bytes = b""


class HistoryColumns(Struct, frozen=True, array_like=True):
    """Rows of a `History` by field. `sequence` has one difference less than there are rows."""

    sequence: HistoryColumn
    group: HistoryColumn
    number: HistoryColumn
    signature: HistoryColumn
    site: HistoryColumn
    issued_ns: HistoryColumn
    took_ns: HistoryColumn
    thread: HistoryColumn
    flags: HistoryColumn
    pseudo: HistoryColumn
    timeout_ms: HistoryColumn


class History(Struct, frozen=True, array_like=True):
    """All ops that a rank's ring still has, oldest first; signatures and sites are sent once.

    The ops are in `rows`, or by field in `columns`.
    """

    signatures: tuple[Signature, ...] = ()
    sites: tuple[Site, ...] = ()
    rows: tuple[HistoryRow, ...] = ()
    lost: int = 0  # ops in between that cannot be read
    note: str = ""  # where the ops come from, and what is not known of them; "": a recorder's ring
    columns: HistoryColumns | None = None


class TensorSummary(Struct, frozen=True, array_like=True):
    """A summary of one tensor. `role` is "input" or "output"; `size` is in bytes.

    Of `elements` values, the first `seen` were read within the time limit; the statistics ignore
    NaN and Inf, and are None when nothing is left. `first` are the first values as text.
    `checksum` covers the bytes of the values seen: ranks with equal data have equal checksums.
    `error` says why there is no more than a shape.
    """

    role: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    size: int
    elements: int
    seen: int = 0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    norm: float | None = None
    nans: int = 0
    infinities: int = 0
    first: tuple[str, ...] = ()
    checksum: str = ""
    error: str = ""


class OpTensors(Struct, frozen=True, array_like=True):
    """The tensors of one pending op, inputs first. `error` says why there are none."""

    sequence: int
    tensors: tuple[TensorSummary, ...] = ()
    error: str = ""


class StateResponse(Struct, frozen=True, array_like=True, tag="state"):
    """`may_act` says whether this operator may also act on ranks."""

    id: int
    update: Update
    may_act: bool = True


class UpdateMessage(Struct, frozen=True, array_like=True, tag="update"):
    """An update for one connection only, after a `StateRequest` with `follow`; `id` is always 0."""

    id: int
    update: Update


class TimeResponse(Struct, frozen=True, array_like=True, tag="time"):
    id: int
    monotonic_ns: int
    wall_ns: int


class HistoryResponse(Struct, frozen=True, array_like=True, tag="history"):
    id: int
    host: str
    key: int
    history: History


class TensorsResponse(Struct, frozen=True, array_like=True, tag="tensors"):
    """The tensors of a rank's pending ops at `at_ns`.

    `error` is one of "", "gone", "silent" (the rank holds the GIL), "stopped", "deadline", "none"
    (nothing pending), "missing" (no responder), "failed"; `help` is the message for the user,
    with the next step.
    """

    id: int
    host: str
    key: int
    at_ns: int
    ops: tuple[OpTensors, ...] = ()
    error: str = ""
    help: str = ""


class DataResponse(Struct, frozen=True, array_like=True, tag="data"):
    """Bytes of a tensor from `offset` on; fewer than requested at its end (`total`)."""

    id: int
    key: int
    sequence: int
    index: int
    offset: int
    total: int
    data: bytes = b""
    error: str = ""
    help: str = ""


class RasRank(Struct, frozen=True, array_like=True):
    """One rank of a communicator, as RAS lists it.

    `rank` is its rank in the communicator. `host` is an address ("" unknown), `pid` the process by
    its own count, which in a container is another than the host's (0 unknown). `init_state` and
    `async_error` are values of ncclResult_t: 0 success, 7 in progress. `counts` are ops that the
    rank has launched, by kind: no completions, no sends and receives, no replays of graphs.
    """

    rank: int
    host: str
    pid: int
    cuda_device: int = -1
    nvml_device: int = -1
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    counts: tuple[tuple[str, int], ...] = ()


class RasMissingRank(Struct, frozen=True, array_like=True):
    """A rank of a communicator that RAS has no data of. Fields as in `RasRank`.

    `unresponsive`: RAS did not reach its process; otherwise the process answered, and not of this
    communicator. `considered_dead` is for good.
    """

    rank: int
    host: str
    pid: int
    cuda_device: int = -1
    nvml_device: int = -1
    unresponsive: bool = False
    considered_dead: bool = False


class RasCommunicator(Struct, frozen=True, array_like=True):
    """A communicator of NCCL; `hash` and `secondary_hash` together identify it."""

    hash: str
    secondary_hash: str
    size: int
    ranks: tuple[RasRank, ...] = ()
    missing: tuple[RasMissingRank, ...] = ()


class RasSummaryRow(Struct, frozen=True, array_like=True):
    """A row of the summary in RAS's text: communicators that are alike."""

    number: int
    communicators: int
    nodes: int
    ranks_per_node: str
    size: int
    ranks: int
    status: str
    errors: str


class RasNamedRank(Struct, frozen=True, array_like=True):
    """A rank that RAS's text names in a problem. `launched` is None where it says nothing of it."""

    rank: int
    host: str = ""
    pid: int = 0
    kind: str = ""  # of the ops launched, "" before NCCL 2.26: all together
    launched: int | None = None
    status: str = ""


class RasProblem(Struct, frozen=True, array_like=True):
    """A problem in RAS's text: `lines` as they are, and the ranks that they name."""

    section: str  # "errors", "warnings"
    kind: str  # "INCOMPLETE", "DEAD", "ERROR", "TIMEOUT", "MISMATCH"
    communicator: str = ""  # its hash, "" for the job
    lines: tuple[str, ...] = ()
    ranks: tuple[RasNamedRank, ...] = ()


class RasReport(Struct, frozen=True, array_like=True):
    """What RAS answered, in its own terms. `form` is "json" or "text" (NCCL before 2.28.7).

    JSON has `communicators`; text has `rows` and `problems`, and names few ranks only.
    """

    form: str
    nccl_version: str = ""
    collection_s: float | None = None
    timeouts: int = 0
    communicators: tuple[RasCommunicator, ...] = ()
    rows: tuple[RasSummaryRow, ...] = ()
    problems: tuple[RasProblem, ...] = ()
    notes: tuple[str, ...] = ()  # what of it could not be used, and why


class RasResponse(Struct, frozen=True, array_like=True, tag="ras"):
    """What an agent found before it asked RAS, and what RAS answered (`report`).

    `version` is that of the rank's NCCL library, "" unknown, and `version_source` how it was found.
    `checked` says what was looked at to rule out that a communicator is being made, `unchecked`
    what could not be. `pids` are own pids, as in `RasRank`, of ranks of this host by their keys.

    `error` is one of "", "gone", "missing" (no NCCL), "off" (RAS is), "making" (a communicator
    is being made), "busy", "namespace" (another network), "shared" (two jobs on one port),
    "closed" (nobody listens), "deadline", "cut", "malformed", "other" (another job answered),
    "failed"; `help` is the message for the user, with the next step.
    """

    id: int
    host: str
    key: int
    at_ns: int
    asked: bool = False  # RAS was asked: from then on it is to be counted as asked
    version: str = ""
    version_source: str = ""
    library: str = ""
    address: str = ""
    checked: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    pids: tuple[tuple[int, int], ...] = ()
    report: RasReport | None = None
    error: str = ""
    help: str = ""


class NativeStacksResponse(Struct, frozen=True, array_like=True, tag="native"):
    """The native stacks of a rank as of `at_ns`, or why there are none.

    `note` is what else the user must know: that the process was left stopped, for instance.
    """

    id: int
    host: str
    key: int
    at_ns: int
    stopped_ns: int = 0  # how long the process stood still, at most
    dump: StackDump = StackDump(0)
    tool: str = ""  # "py-spy" or "pystack"; "" when nothing was attached
    note: str = ""


class SnapshotResponse(Struct, frozen=True, array_like=True, tag="look"):
    id: int
    host: str
    snapshots: tuple[Snapshot, ...]
    monotonic_ns: int = 0


class Error(Struct, frozen=True, array_like=True, tag="refusal"):
    """The agent will not, or cannot; `text` is a message for the user.

    `reason` is one of "" (unknown), "permission", "busy", "gone", "failed", "words" (malformed).
    """

    id: int
    text: str
    reason: str = ""


Response = (
    StateResponse
    | UpdateMessage
    | SnapshotResponse
    | TimeResponse
    | HistoryResponse
    | TensorsResponse
    | DataResponse
    | RasResponse
    | NativeStacksResponse
    | Error
)


class BlackBox(Struct, frozen=True, array_like=True):
    """The black box: what an agent saves of one job's ranks on its host.

    `before` is the state as of the last tick before the first bad death, None when there was
    none; `after` is the state as of writing. `snapshots` are the last ones taken, oldest first.
    `complete` says that every rank had ended and was read. `since_ns` is when the agent began to
    follow ranks without a recorder, by its monotonic clock; 0: they have recorders.
    """

    host: str
    instance: str
    job: Job
    monotonic_ns: int
    wall_ns: int
    before: Update | None
    after: Update
    snapshots: tuple[SnapshotResponse, ...] = ()
    histories: tuple[HistoryResponse, ...] = ()
    complete: bool = False
    version: str = ""
    since_ns: int = 0


Message = TypeVar("Message")


class WireError(Exception):
    """The data is no message of this protocol: too large, malformed, or of another type."""


_encoder = msgspec.msgpack.Encoder()
_updates = msgspec.msgpack.Decoder(Update)
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_responses: msgspec.msgpack.Decoder[Response] = msgspec.msgpack.Decoder(Response)
_boxes = msgspec.msgpack.Decoder(BlackBox)


def encode(message: Update | Request | Response | BlackBox) -> bytes:
    return _encoder.encode(message)


def to_frame(message: Update | Request | Response) -> bytes:
    """Encodes a message into the one frame that is sent."""
    return PROTOCOL + _encoder.encode(message)


def from_frame(frame: bytes) -> bytes:
    """Removes the protocol's prefix from a frame; raises `WireError` when it is missing."""
    if not frame.startswith(PROTOCOL):
        raise WireError("no message of frtop")
    return frame[len(PROTOCOL) :]


def decode_update(data: bytes) -> Update:
    """Decodes an update; raises `WireError` for anything else."""
    return _decode(_updates, data)


def decode_request(data: bytes) -> Request:
    """Decodes a request; raises `WireError` for anything else."""
    return _decode(_requests, data)


def decode_response(data: bytes) -> Response:
    """Decodes a response; raises `WireError` for anything else."""
    return _decode(_responses, data)


def decode_box(data: bytes) -> BlackBox:
    """Decodes a black box, whose file bounds the size; raises `WireError` for anything else."""
    try:
        return _boxes.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from error


def _decode(decoder: msgspec.msgpack.Decoder[Message], data: bytes) -> Message:
    if len(data) > MAX_MESSAGE:
        raise WireError(f"message of {len(data)} bytes is larger than {MAX_MESSAGE}")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from error
