"""torch's profiler inside a rank, and stacks that are sampled from outside."""

from __future__ import annotations

from msgspec import Struct

from frtop_probe.wire.values import Int, Real


class ProfileRequest(Struct, frozen=True, array_like=True, tag="profile"):
    """Runs torch's profiler in a rank, for `steps` or else for `seconds`. An act.

    `action` is "begin", "status" or "withdraw"; `order` is the operator's own word for the order,
    8 to 32 hex digits. Without a request for some 15 s the rank withdraws the order itself.
    `wait_s`: how long the thread that trains may take to reach a step (for seconds: an op).
    """

    id: Int
    key: Int
    action: str
    order: str
    steps: Int = 0
    seconds: Real = 0.0
    wait_s: Real = 60.0
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    devices: bool = True
    execution: bool = False  # with the execution trace observer


class ProfileFile(Struct, frozen=True, array_like=True):
    """A file of a profile: `name` is "trace", "execution" or "modules", `size` in bytes."""

    name: str
    size: Int


class ProfileResponse(Struct, frozen=True, array_like=True, tag="profile"):
    """How far an order is.

    `stage` is one of "waiting" (for the thread that trains), "running", "saving", "ready" (`files`
    can be fetched), "over". `first` and `last` are the steps it has recorded so far; `clocks` the
    rank's monotonic and wall clock at its start and end: the trace has wall times.

    `error` is one of "", "gone", "silent" (the rank holds the GIL), "stopped", "deadline",
    "missing" (no responder), "busy", "failed"; `help` is the message for the user.
    """

    id: Int
    host: str
    key: Int
    at_ns: Int
    stage: str = ""
    first: Int = 0
    last: Int = 0
    lasted_ns: Int = 0
    stood_still_ns: Int = 0  # of the thread that trains, for starting, stopping and writing
    clocks: tuple[tuple[Int, Int], ...] = ()
    files: tuple[ProfileFile, ...] = ()
    error: str = ""
    help: str = ""


class ProfileDataRequest(Struct, frozen=True, array_like=True, tag="profile_data"):
    """Requests `size` bytes of a file of a profile that is ready, from `offset` on. An act."""

    id: Int
    key: Int
    name: str
    offset: Int
    size: Int


class ProfileDataResponse(Struct, frozen=True, array_like=True, tag="profile_data"):
    """Bytes of a file from `offset` on, as one zlib stream; `size` and `total` are without it."""

    id: Int
    key: Int
    name: str
    offset: Int
    size: Int
    total: Int
    data: bytes = b""
    error: str = ""
    help: str = ""


class SampleRequest(Struct, frozen=True, array_like=True, tag="sample"):
    """Requests the stacks of a rank, sampled `rate` times a second for `seconds`. Only reads.

    With `idle` also those of threads that wait.
    """

    id: Int
    key: Int
    seconds: Real = 10.0
    rate: Int = 100
    idle: bool = True


class SampleResponse(Struct, frozen=True, array_like=True, tag="sample"):
    """Sampled stacks: each as text, "function (file:line);...", and how often it was seen.

    `missed` are samples that could not be read. `error` is as of a `StackDump`.
    """

    id: Int
    host: str
    key: Int
    at_ns: Int
    seconds: Real = 0.0
    rate: Int = 0
    stacks: tuple[tuple[str, Int], ...] = ()
    missed: Int = 0
    note: str = ""
    error: str = ""
    help: str = ""
