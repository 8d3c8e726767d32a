"""What is read: plain values, and back from their form as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cost:
    """What a look took: wall time in milliseconds, reads and bytes of /proc/PID/mem."""

    ms: float = 0.0
    reads: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Shape, dtype and device of a tensor; never its values.

    Attributes:
        dtype: As torch prints it without "torch.", or "dtype N" for one without a name here.
        device: "cpu" or "cuda:0"; "device N" for a type without a name here.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str


@dataclass(frozen=True, slots=True)
class Work:
    """A `c10d::Work` of gloo.

    Attributes:
        op: Kind, as in c10d's OpType, in lower case: "allreduce", "barrier", "recv".
        number: Sequence number within its group.
        completed: What the object says. A send or recv says so only after its wait returned.
        timeout_s: Seconds until it fails by itself; None where there is no such limit.
        outputs: Output tensors; None when they could not be validated.
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
    """Of `c10d::ProcessGroupStatus`: last numbers per stage; -1 when there was none.

    NCCL's watchdog writes them; gloo writes `enqueued` only, and only while it records.
    """

    enqueued: int
    started: int
    completed: int


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend object of a group.

    Attributes:
        kind: "gloo", "nccl", "nccl2", or "" for a class that is not known here.
        devices: Device types that it serves: "cpu", "cuda", "device N".
        number: Sequence number of the last op that was issued; None when it is not readable.
        counts_p2p: Whether sends and receives, and gloo's monitored barrier, count as well: then
            members may legally differ once one was seen.
        collectives: Number of collectives issued, counted alike by all members, where sends and
            receives are counted in `number`, too; None when it is not readable. A monitored
            barrier counts twice.
        p2p_number: Number of sends and receives issued, where they are counted apart.
        timeout_s: Seconds after which an op of this group fails.
        pending: Ops in progress or queued on the host; gloo only.
        checks: Ops of the helper group that TORCH_DISTRIBUTED_DEBUG=DETAIL adds, in progress.
        check_number: Sequence number of that helper: it checks an op before the op is issued, so a
            rank that waits in such a check is ahead in this number only.
        checked: Whether the backend stands behind such a wrapper.
        proven: Whether this kind was ever compared with a live job. NCCL was not.
        reason: Why something of it is missing; "" if nothing is.
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
        address: Of the Python object, as in `<ProcessGroup at 0x...>`.
        ranks: Global ranks of its members in the order of their group ranks; None if not known.
        rank: Rank of this process within the group.
        config: torch's own text for its backends, such as "cpu:gloo,cuda:nccl".
        reason: Why something of it is missing; "" if nothing is.
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
        state: Letter of the main thread's state before the look; `wchan` its kernel function.
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
    """A transport past c10d that a process has at hand, and the sign that tells so."""

    name: str
    sign: str


@dataclass(frozen=True, slots=True)
class RingEntry:
    """One entry of the Flight Recorder.

    Attributes:
        number: `collective_seq_id`, counted for collectives only; `p2p_number` the others.
        op_id: Logical op within the group: one for each op of a coalesced group.
        op: Profiling name, such as "gloo:all_reduce".
        input_types: Dtypes of all inputs; None when they are not readable.
        site: File, line and function that issued it, the innermost outside torch; None if unknown.
        created_ns: Wall clock in nanoseconds after 1970; started and completed are when the
            watchdog saw it, 0 if it did not.
        timeout_ms: Of the op.
        retired: No longer in work: completed, or given up.
        thread_ident: pthread handle of the thread that issued it; `thread` its name.
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
        capacity: Entries that it can hold; 0 means off.
        recorded: Entries that were ever recorded.
        torn: Entries left out because they were written during each of several reads.
    """

    kind: str
    capacity: int
    recorded: int
    entries: tuple[RingEntry, ...] = ()
    torn: int = 0
    reason: str = ""


def c10d_state_from(data: dict[str, Any]) -> C10dState:
    """Reads what `dataclasses.asdict` made of `C10dState`.

    Raises:
        TypeError: a field is missing, or unknown.
        KeyError: as above.
    """
    groups = tuple(_group_from(group) for group in data["groups"])
    return C10dState(**{**data, "groups": groups, "cost": Cost(**data["cost"])})


def tensor_from(data: dict[str, Any]) -> TensorInfo:
    """Reads what `dataclasses.asdict` made of a `TensorInfo`; raises as `c10d_state_from`."""
    return TensorInfo(**{**data, "shape": tuple(data["shape"])})


def work_from(data: dict[str, Any]) -> Work:
    """Reads what `dataclasses.asdict` made of a `Work`; raises as `c10d_state_from`."""
    outputs = data["outputs"]
    tensors = None if outputs is None else tuple(tensor_from(tensor) for tensor in outputs)
    return Work(**{**data, "outputs": tensors})


def _group_from(data: dict[str, Any]) -> GroupState:
    ranks = None if data["ranks"] is None else tuple(data["ranks"])
    backends = tuple(_backend_from(backend) for backend in data["backends"])
    return GroupState(**{**data, "ranks": ranks, "backends": backends})


def _backend_from(data: dict[str, Any]) -> Backend:
    return Backend(
        **{
            **data,
            "devices": tuple(data["devices"]),
            "pending": tuple(work_from(work) for work in data["pending"]),
            "checks": tuple(work_from(work) for work in data["checks"]),
            "fronts": None if data["fronts"] is None else Fronts(**data["fronts"]),
        }
    )
