"""Every message between agent and operator, in one home.

msgpack arrays, one per struct, typed and checked while decoding (msgspec). Every ZeroMQ
message is one frame that begins with `PROTOCOL`; another beginning is another protocol.
One frame: libzmq aborts the process when a connection goes between two frames of a message
that is being received (`!_more`, fq.cpp).

Evolution: fields are only appended and have defaults; types never change; unknown
trailing fields are ignored. So an old screen reads a new agent, and the other way round.
Bytes kept under `tests/wire/` prove it.

Times are `time.monotonic_ns()` of the sending host. Ranks are global ranks. "None" in a
field that could be known means unknown: neither equal to nor different from anything.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

PROTOCOL: Final = b"frtop1"
MAX_MESSAGE: Final = 64 * 1024 * 1024
"""Upper bound on what is decoded, in bytes; also the sockets' own limit."""


class TensorSpec(Struct, frozen=True, array_like=True):
    """`count` tensors in a row that are alike."""

    dtype: str
    shape: tuple[int, ...]
    count: int = 1
    device: str = "cpu"


class Signature(Struct, frozen=True, array_like=True):
    """What an op is, apart from when and where. `peer` and `root` are global ranks.

    `members` is only of calls that make groups: who has to make the call (folded).
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
    """The line that issued an op: innermost frame outside torch."""

    file: str
    line: int
    function: str


class Op(Struct, frozen=True, array_like=True):
    """One op of one rank. `group` is the rank's own number for the group (0: none).

    `done_ns` is 0 while pending and negative when it failed at that time. `thread` is
    the pthread ident that py-spy also reports. `usual_ns` is the smoothed wait of the
    call site over `usual_count` ops. `timeout_ms` 0 means the group's. `started_ns` is when
    its device was seen to work on it; 0: not, or nobody looks.
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

    @property
    def pending(self) -> bool:
        return self.done_ns == 0


class Job(Struct, frozen=True, array_like=True):
    """What makes two ranks members of the same job."""

    master_addr: str
    master_port: int
    world_size: int
    run_id: str = ""
    attempt: int = 0
    nonce: str = ""
    name: str = ""  # for people: the program's name


class Identity(Struct, frozen=True, array_like=True):
    """Who a ring belongs to. `rank` is -1 until the program has said."""

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
    record: str = ""  # folder for the black box, "" when nobody wants one
    settings: tuple[tuple[str, str], ...] = ()  # of torch and transports, from the environment


class Fetch(Struct, frozen=True, array_like=True):
    """Last DataLoader fetch; `end_ns` < `begin_ns` means the rank is inside it now.

    `worker` is the index waited for: -1 unknown, -2 loading in the rank itself.
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
    fetch: Fetch | None = None
    side_lost: int = 0
    pending_lost: int = 0
    hook_errors: int = 0


class Group(Struct, frozen=True, array_like=True):
    """A process group as one rank knows it; `ranks` is folded (`0-3,8`).

    `exact` says that ops were counted from the group's creation, so numbers can be
    compared between ranks. `epoch` counts re-creations of the same name and members.
    """

    id: int
    name: str
    description: str
    backend: str
    ranks: str
    exact: bool = True
    epoch: int = 0
    timeout_s: float = 0.0


class GroupProgress(Struct, frozen=True, array_like=True):
    """How far a rank has come in a group: its last op there.

    `last` is left out (None) while the group moves quickly and nobody could use it.
    """

    group: int
    number: int
    p2p: int
    issued_ns: int
    last: Op | None = None


class Process(Struct, frozen=True, array_like=True):
    """What /proc says. `wchan` and `syscall` are of the main thread, "" if unreadable.

    `state` is the process's letter (main thread), `file` what its current read, write or
    similar call is about, `cpu_ns` user + system of all threads, `io_bytes` read +
    written (-1 unreadable), `rss` bytes. `ready_ns` is how long the main thread ran or was
    about to run, up to its last turn (-1 unreadable).
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
    """One frame, innermost first in its list. `source` is the text of the line, if read.

    `variables` are names and values in words, where a dump was taken with them.
    """

    function: str
    file: str
    line: int
    module: str = ""
    source: str = ""
    variables: tuple[tuple[str, str], ...] = ()


class ThreadStack(Struct, frozen=True, array_like=True):
    """One thread of a dump. `ident` is the pthread handle, `tid` the kernel's number."""

    ident: int
    tid: int
    name: str
    active: bool
    owns_gil: bool
    frames: tuple[TraceFrame, ...]


class ExitInfo(Struct, frozen=True, array_like=True):
    """How a rank's process ended. Both None: gone, cause unknown.

    `clean` means that the recorder saw the interpreter end by itself, in an orderly way.
    """

    at_ns: int
    exit_code: int | None = None
    signal: int | None = None
    clean: bool = False
    oom_kills: int = 0  # by which the cgroup's counter rose around that moment


class UncaughtException(Struct, frozen=True, array_like=True):
    """An uncaught exception. `main` says that it ended the program, not only a thread."""

    kind: str
    text: str
    thread: str
    main: bool
    at_ns: int
    frames: tuple[TraceFrame, ...] = ()


class BlockSums(Struct, frozen=True, array_like=True):
    """Sums over consecutive blocks of `size` ops of a group, the first from op `first` on.

    Four bytes for each block, see `sums`. `pairs` is empty where all of them are nothing.
    Only sums of the same `rule` can be compared (`agreement.RULE`).
    """

    group: int
    first: int
    size: int
    sums: bytes
    pairs: bytes = b""
    rule: int = 1


class RankUpdate(Struct, frozen=True, array_like=True):
    """What is new about one rank; what is None or empty has not changed.

    `key` is the agent's number for the process, stable while the agent lives. In the
    answer to `StateRequest` everything is filled in.
    """

    key: int
    identity: Identity | None = None
    status: RankStatus | None = None
    groups: tuple[Group, ...] = ()
    group_progress: tuple[GroupProgress, ...] = ()
    pending: tuple[Op, ...] | None = None
    pending_more: int = 0  # further pending ops that were left out
    process: Process | None = None
    exception: UncaughtException | None = None
    exit_info: ExitInfo | None = None
    notes: tuple[str, ...] = ()
    blocks: tuple[BlockSums, ...] = ()  # in the full state: the last ones


class Update(Struct, frozen=True, array_like=True):
    """What an agent sends about its host in one tick; also its full state on request.

    `number` counts ticks; the full state carries the number of the last tick in it, so a
    client applies those that follow and asks again when one is missing.
    """

    host: str
    instance: str  # of the agent: another one counts anew
    number: int
    monotonic_ns: int
    wall_ns: int
    ranks: tuple[RankUpdate, ...] = ()
    forgotten: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()  # about the host: rings that could not be read, ...
    version: str = ""
    full: bool = False


class StateRequest(Struct, frozen=True, array_like=True, tag="state"):
    """Asks for everything; answered with a full `Update`.

    With `read_only` the operator gives up acting: from then on the agent refuses it on
    this connection whatever the key may do.
    """

    id: int
    read_only: bool = False


class SnapshotRequest(Struct, frozen=True, array_like=True, tag="look"):
    """Asks for looks at some ranks: `/proc` of them and their children, last `ops` ops.

    With `stacks` also for a non-blocking dump of their threads, and of the processes in
    `pids` as far as they are children of such a rank.
    """

    id: int
    keys: tuple[int, ...]
    stacks: bool = True
    ops: int = 0
    pids: tuple[int, ...] = ()


class TimeRequest(Struct, frozen=True, array_like=True, tag="time"):
    """Asks for the agent's clocks: half of the round trip bounds the error of comparing."""

    id: int


class HistoryRequest(Struct, frozen=True, array_like=True, tag="history"):
    """Asks for the ops of one rank that its ring still holds, the newest `limit` (0: all).

    With a `group` (the rank's own number for it) for those of its collectives that have the
    numbers `first` to `last`.
    """

    id: int
    key: int
    limit: int = 0
    group: int = 0
    first: int = 0
    last: int = 0


class TensorsRequest(Struct, frozen=True, array_like=True, tag="tensors"):
    """Asks a rank itself what is in the tensors of its pending op `sequence` (0: of all).

    An act, not a reading: it makes the rank work, and shows data.
    """

    id: int
    key: int
    sequence: int = 0


class DataRequest(Struct, frozen=True, array_like=True, tag="data"):
    """Asks for bytes of one tensor of a pending op, `size` from `offset` on. An act.

    `index` counts the tensors of the op as `TensorsResponse` lists them.
    """

    id: int
    key: int
    sequence: int
    index: int
    offset: int
    size: int


Request = (
    StateRequest | SnapshotRequest | TimeRequest | HistoryRequest | TensorsRequest | DataRequest
)


class StackDump(Struct, frozen=True, array_like=True):
    """Stacks of one process, or why there are none.

    `error` is one of "", "refused", "gone", "deadline", "missing", "failed"; `help` the
    sentence for the user, with the next step.
    """

    pid: int
    threads: tuple[ThreadStack, ...] = ()
    error: str = ""
    help: str = ""


class Link(Struct, frozen=True, array_like=True):
    """A connection whose other side acknowledges nothing: `10.0.0.1:4711`, `[fe80::1]:4711`.

    `queued` bytes were sent, the oldest of them `again` times more, in vain.
    """

    local: str
    remote: str
    queued: int = 0
    again: int = 0


class Snapshot(Struct, frozen=True, array_like=True):
    """One rank seen at one moment. `processes` has the rank first, then its children.

    `links` are its connections that bring nothing over; `addresses` those of its host that
    have connections at all.
    """

    key: int
    at_ns: int
    status: RankStatus | None = None
    processes: tuple[Process, ...] = ()
    dumps: tuple[StackDump, ...] = ()
    ops: tuple[Op, ...] = ()
    ops_lost: int = 0
    threads: tuple[Process, ...] = ()  # the rank's own threads, pid = native id
    links: tuple[Link, ...] = ()
    addresses: tuple[str, ...] = ()


class HistoryRow(Struct, frozen=True, array_like=True):
    """An `Op` in a `History`: `signature` and `site` count its tables from 1, 0 is none.

    `took_ns` is 0 while pending, negative when the op failed after that time. `flags` are
    those of a slot of the ring (`ring.layout.Flag`).
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


class History(Struct, frozen=True, array_like=True):
    """All ops of one rank that its ring still holds, oldest first; repeats are told once."""

    signatures: tuple[Signature, ...] = ()
    sites: tuple[Site, ...] = ()
    rows: tuple[HistoryRow, ...] = ()
    lost: int = 0  # ops in between that could not be read


class TensorSummary(Struct, frozen=True, array_like=True):
    """What is in one tensor. `role` is "input" or "output"; `size` is in bytes.

    Of `elements` values the first `seen` were looked at, as many as there was time for;
    the statistics leave NaN and Inf out and are None when nothing is left. `first` are the
    first values as text. `checksum` is over the bytes of the values seen: ranks that hold
    the same data have the same. `error` says why there is no more than a shape.
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
    """`may_act` says whether this operator may ask for more than to look."""

    id: int
    update: Update
    may_act: bool = True


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
    """Tensors of a rank's pending ops at `at_ns`.

    `error` is one of "", "gone", "silent" (the rank holds the GIL), "stopped",
    "deadline", "none" (nothing pending), "missing" (no responder), "failed"; `help` the
    sentence for the user, with the next step.
    """

    id: int
    host: str
    key: int
    at_ns: int
    ops: tuple[OpTensors, ...] = ()
    error: str = ""
    help: str = ""


class DataResponse(Struct, frozen=True, array_like=True, tag="data"):
    """Bytes of a tensor from `offset` on; fewer than asked for at its end (`total`)."""

    id: int
    key: int
    sequence: int
    index: int
    offset: int
    total: int
    data: bytes = b""
    error: str = ""
    help: str = ""


class SnapshotResponse(Struct, frozen=True, array_like=True, tag="look"):
    id: int
    host: str
    snapshots: tuple[Snapshot, ...]
    monotonic_ns: int = 0


class Error(Struct, frozen=True, array_like=True, tag="refusal"):
    """The agent will not, or cannot; `text` is a sentence for the user.

    `reason` is one of "" (unknown), "permission", "busy", "gone", "failed", "words".
    """

    id: int
    text: str
    reason: str = ""


Response = (
    StateResponse
    | SnapshotResponse
    | TimeResponse
    | HistoryResponse
    | TensorsResponse
    | DataResponse
    | Error
)


class BlackBox(Struct, frozen=True, array_like=True):
    """The black box: what an agent writes down of one job's ranks on its host.

    `before` is everything as of the last tick before the first bad death, None when there
    was none; `after` is everything as of writing. `looks` are the last ones that were
    taken, oldest first. `complete` says that every rank had ended and was read.
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


Message = TypeVar("Message")


class WireError(Exception):
    """What arrived is no message of ours: too large, malformed, or of another type."""


_encoder = msgspec.msgpack.Encoder()
_updates = msgspec.msgpack.Decoder(Update)
_asks: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answers: msgspec.msgpack.Decoder[Response] = msgspec.msgpack.Decoder(Response)
_boxes = msgspec.msgpack.Decoder(BlackBox)


def encode(message: Update | Request | Response | BlackBox) -> bytes:
    return _encoder.encode(message)


def packed(message: Update | Request | Response) -> bytes:
    """A message as it is sent: one frame."""
    return PROTOCOL + _encoder.encode(message)


def unpacked(frame: bytes) -> bytes:
    """What was encoded into a frame. Raises `WireError` for one of another protocol."""
    if not frame.startswith(PROTOCOL):
        raise WireError("no message of frtop")
    return frame[len(PROTOCOL) :]


def decode_update(data: bytes) -> Update:
    """Raises `WireError` for anything that is no update."""
    return _decode(_updates, data)


def decode_request(data: bytes) -> Request:
    """Raises `WireError` for anything that is no request."""
    return _decode(_asks, data)


def decode_response(data: bytes) -> Response:
    """Raises `WireError` for anything that is no answer."""
    return _decode(_answers, data)


def decode_box(data: bytes) -> BlackBox:
    """Raises `WireError` for anything that is no black box; its file bounds the size."""
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
