"""The state read from a process: plain values, which a child sends as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a look: wall time in ms, reads and bytes of /proc/PID/mem."""

    ms: float = 0.0
    reads: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Shape, dtype and device of a tensor; never its values.

    Attributes:
        dtype: As torch prints it without "torch.", or "dtype N" if it has no name here.
        device: "cpu" or "cuda:0"; "device N" if its type has no name here.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str


@dataclass(frozen=True, slots=True)
class Work:
    """A gloo `c10d::Work`.

    Attributes:
        op: Kind, as in c10d's OpType, in lower case: "allreduce", "barrier", "recv".
        number: Sequence number within its group.
        completed: As the object says; a send or recv says so only after its wait returns.
        timeout_s: Seconds after which it fails; None without a limit.
        outputs: Output tensors; None if they could not be validated.
        running: False for an op that still waits for one of gloo's threads.
    """

    op: str
    number: int
    completed: bool
    timeout_s: float | None = None
    outputs: tuple[TensorInfo, ...] | None = None
    running: bool = True


@dataclass(frozen=True, slots=True)
class Fronts:
    """The last numbers per stage in a `c10d::ProcessGroupStatus`; -1 if none yet.

    NCCL's watchdog writes them; gloo writes only `enqueued`, and only while it records.
    """

    enqueued: int
    started: int
    completed: int


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend object of a group.

    Attributes:
        kind: "gloo", "nccl", "nccl2", or "" for an unknown class.
        devices: Device types that it serves: "cpu", "cuda", "device N".
        number: Sequence number of the last op issued; None if not readable.
        counts_p2p: `number` also counts sends, receives and gloo's monitored barrier; after these,
            members may legally differ.
        collectives: Number of collectives issued, if `number` counts more; None if not
            readable. All members count alike; a monitored barrier counts twice.
        p2p_number: Number of sends and receives issued, if the backend counts them separately.
        timeout_s: Seconds after which an op of this group fails.
        pending: Ops in progress or queued on the host; gloo only.
        checks: Ops in progress of the helper group that TORCH_DISTRIBUTED_DEBUG=DETAIL adds.
        check_number: Sequence number of that helper. It checks an op before the op is issued, so a
            rank that waits in a check is ahead in this number only.
        checked: Whether the wrapper that makes these checks contains the backend.
        proven: Whether this kind was tested on a live job; NCCL was not.
        reason: Why something is missing; "" if nothing is.
    """

    kind: str
    devices: tuple[str, ...] = ()
    number: int | None = None
    counts_p2p: bool = False
    collectives: int | None = None
    p2p_number: int | None = None
    timeout_s: float | None = None
    pending: tuple[Work, ...] = ()
    checks: tuple[Work, ...] = ()
    check_number: int | None = None
    fronts: Fronts | None = None
    checked: bool = False
    proven: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupState:
    """One process group of this rank.

    Attributes:
        address: Address of the Python object, as in `<ProcessGroup at 0x...>`.
        ranks: Global ranks of its members in the order of their group ranks; None if unknown.
        rank: Rank of this process within the group.
        config: torch's own text for its backends, such as "cpu:gloo,cuda:nccl".
        reason: Why something is missing; "" if nothing is.
    """

    address: int
    name: str
    description: str = ""
    ranks: tuple[int, ...] | None = None
    rank: int = -1
    size: int = 0
    config: str = ""
    backends: tuple[Backend, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class C10dState:
    """c10d's state of one process at one moment. A look is not atomic.

    Attributes:
        start_ticks: Start of the process in clock ticks after boot.
        state: Letter of the main thread's state before the look; `wchan` is its kernel function.
        groups: In order of creation.
        reason: Why there are no groups; "" if there are.
    """

    pid: int
    start_ticks: int = 0
    state: str = ""
    wchan: str = ""
    groups: tuple[GroupState, ...] = ()
    reason: str = ""
    cost: Cost = Cost()


@dataclass(frozen=True, slots=True)
class FoundTransport:
    """A transport beyond c10d that a process has loaded, and the sign that shows it."""

    name: str
    sign: str


@dataclass(frozen=True, slots=True)
class RingEntry:
    """One entry of the Flight Recorder.

    Attributes:
        number: `collective_seq_id`, which counts collectives; `p2p_number` counts the other ops.
        op_id: Logical op within the group; each op of a coalesced group has its own.
        op: Profiling name, such as "gloo:all_reduce".
        input_types: Dtypes of all inputs; None if not readable.
        site: File, line and function that issued it, the innermost outside torch; None if unknown.
        created_ns: Unix time. `started_ns` and `completed_ns` are when torch's watchdog saw the op
            start and complete; 0 if it did not.
        retired: torch no longer works on the op: it completed, or torch gave up.
        thread: Name of the thread that issued it; `thread_ident` is its pthread handle.
    """

    id: int
    group: str
    description: str
    number: int
    p2p_number: int
    op_id: int
    op: str
    is_p2p: bool
    inputs: tuple[tuple[int, ...], ...] | None
    outputs: tuple[tuple[int, ...], ...] | None
    created_ns: int
    started_ns: int
    completed_ns: int
    timeout_ms: int
    retired: bool
    thread: str
    input_types: tuple[str, ...] | None = None
    output_types: tuple[str, ...] | None = None
    site: tuple[str, int, str] | None = None
    thread_ident: int = 0


@dataclass(frozen=True, slots=True)
class FlightRing:
    """A Flight Recorder ring.

    Attributes:
        kind: "gloo" or "nccl".
        capacity: Number of entries that it can hold; 0 if it is off.
        recorded: Number of entries ever recorded.
        torn: Number of entries left out, because the rank wrote them during each read.
    """

    kind: str
    capacity: int
    recorded: int
    entries: tuple[RingEntry, ...] = ()
    torn: int = 0
    reason: str = ""


def from_json(kind: type[Value], data: Mapping[str, Any]) -> Value:
    """Rebuilds a dataclass from the JSON of `dataclasses.asdict`.

    Raises:
        TypeError: A field is missing or unknown, or has another form.
    """
    readers = _readers(kind)  # type: ignore[arg-type]
    return kind(
        **{
            name: readers[name](value) if name in readers else value
            for name, value in {**data}.items()
        }
    )


@cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    """Returns, by name, how to read the fields that JSON holds in another form."""
    hints = get_type_hints(kind)
    found = ((field.name, _reader(hints[field.name])) for field in fields(kind))
    return {name: reader for name, reader in found if reader is not None}


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    if is_dataclass(hint):
        return partial(from_json, hint)  # type: ignore[arg-type]
    inner = next(filter(None, map(_reader, get_args(hint))), None)
    if get_origin(hint) is tuple:
        return tuple if inner is None else lambda values: tuple(map(inner, values))
    return inner and (lambda value: None if value is None else inner(value))


_SHARED: Final = (
    "group", "description", "op", "inputs", "outputs", "input_types", "output_types", "thread",
    "site", "thread_ident",
)  # fmt: skip
_OWN: Final = (
    "id", "number", "p2p_number", "op_id", "is_p2p", "created_ns", "started_ns", "completed_ns",
    "timeout_ms", "retired",
)  # fmt: skip
_shared_of: Final = attrgetter(*_SHARED)
_own_of: Final = attrgetter(*_OWN)


def ring_json(ring: FlightRing) -> dict[str, Any]:
    """Returns a ring as a table, in which shared groups, shapes and lines occur only once."""
    places: dict[tuple[Any, ...], int] = {}
    rows = []
    for entry in ring.entries:
        place = places.setdefault(_shared_of(entry), len(places))
        rows.append((place, *_own_of(entry)))
    head = {field.name: getattr(ring, field.name) for field in fields(ring)}
    return {**head, "entries": rows, "shared": list(places)}


def ring_from(data: Mapping[str, Any]) -> FlightRing:
    """Rebuilds a ring from the JSON of `ring_json`.

    Raises:
        TypeError: A value is missing or unknown.
        LookupError: A column is missing, or a row refers to nothing.
        ValueError: A row is too short.
    """
    head = {**data}
    shared = [dict(zip(_SHARED, map(_frozen, one), strict=True)) for one in head.pop("shared")]
    entries = tuple(
        RingEntry(**shared[place], **dict(zip(_OWN, own, strict=True)))
        for place, *own in head.pop("entries")
    )
    return FlightRing(**head, entries=entries)


def _frozen(value: Any) -> Any:
    """Returns the value with tuples instead of lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
