"""torch's profiler inside a rank."""

from __future__ import annotations

from frtop_probe.wire.declaration import Piece, PieceRequest, RankRequest, Response
from frtop_probe.wire.values import Int, Real, Value


class ProfileFile(Value, frozen=True):
    """A file of a profile: `name` is "trace", "execution" or "modules", `size` in bytes."""

    name: str
    size: Int


class ProfileResponse(Response, frozen=True, array_like=True, tag=True):
    """The progress of an order.

    `stage` is one of "waiting" (for the thread that trains), "warming", "running", "saving",
    "ready" (`files` can be fetched), "over". `first` and `last` are the steps recorded so far, and
    while it warms up `first` is the step at which it will begin to record; `clocks` are the
    rank's monotonic and wall clock at start and end: the trace has wall times.

    `error` is one of "", "gone", "silent" (the rank holds the GIL), "stopped", "deadline",
    "missing" (no responder), "none" (no process group yet), "busy", "failed"; `help` is the
    message for the user.
    """

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


class ProfileRank(RankRequest, frozen=True, array_like=True, tag=True):
    """Runs torch's profiler in a rank, for `steps` or else for `seconds`.

    `action` is "begin", "status" or "withdraw"; `order` is the operator's own word for the order,
    8 to 32 hex digits. After some 15 s without a request, the rank withdraws the order itself.
    `wait_s`: how long the thread that trains may take to reach a step (for seconds: an op).
    With `at_step`, recording begins at this step, else at the next one; torch's profiler is
    started `warm_up` steps earlier.
    """

    answer = ProfileResponse
    in_rank = True
    nothing = "it is in no process group yet"

    action: str = ""
    order: str = ""
    steps: Int = 0
    seconds: Real = 0.0
    wait_s: Real = 60.0
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    execution: bool = False  # with the execution trace observer
    at_step: Int = 0
    warm_up: Int = 0


class ReadProfile(PieceRequest, frozen=True, array_like=True, tag=True):
    """Requests bytes of a file of a finished profile."""

    answer = Piece
    needs_recorder = True
    timeout_s = 60.0  # the rank keeps its file meanwhile

    name: str = ""
