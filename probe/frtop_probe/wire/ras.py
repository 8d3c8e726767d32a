"""What NCCL's RAS answers, in its own terms."""

from __future__ import annotations

from msgspec import Struct

from frtop_probe.wire.values import Int, Real


class RasRank(Struct, frozen=True, array_like=True):
    """One rank of a communicator, as RAS lists it.

    `rank` is its rank in the communicator. `host` is an address ("" unknown), `pid` the process by
    its own count, which in a container is another than the host's (0 unknown). `init_state` and
    `async_error` are values of ncclResult_t: 0 success, 7 in progress. `counts` are ops that the
    rank has launched, by kind: no completions, no sends and receives, no replays of graphs.
    """

    rank: Int
    host: str
    pid: Int
    cuda_device: Int = -1
    nvml_device: Int = -1
    init_state: Int = 0
    async_error: Int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    counts: tuple[tuple[str, Int], ...] = ()


class RasMissingRank(Struct, frozen=True, array_like=True):
    """A rank of a communicator that RAS has no data of. Fields as in `RasRank`.

    `unresponsive`: RAS did not reach its process; otherwise the process answered, and not of this
    communicator. `considered_dead` is for good.
    """

    rank: Int
    host: str
    pid: Int
    cuda_device: Int = -1
    nvml_device: Int = -1
    unresponsive: bool = False
    considered_dead: bool = False


class RasCommunicator(Struct, frozen=True, array_like=True):
    """A communicator of NCCL; `hash` and `secondary_hash` together identify it."""

    hash: str
    secondary_hash: str
    size: Int
    ranks: tuple[RasRank, ...] = ()
    missing: tuple[RasMissingRank, ...] = ()


class RasSummaryRow(Struct, frozen=True, array_like=True):
    """A row of the summary in RAS's text: communicators that are alike."""

    number: Int
    communicators: Int
    nodes: Int
    ranks_per_node: str
    size: Int
    ranks: Int
    status: str
    errors: str


class RasNamedRank(Struct, frozen=True, array_like=True):
    """A rank that RAS's text names in a problem. `launched` is None where it says nothing of it."""

    rank: Int
    host: str = ""
    pid: Int = 0
    kind: str = ""  # of the ops launched, "" before NCCL 2.26: all together
    launched: Int | None = None
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
    collection_s: Real | None = None
    timeouts: Int = 0
    communicators: tuple[RasCommunicator, ...] = ()
    rows: tuple[RasSummaryRow, ...] = ()
    problems: tuple[RasProblem, ...] = ()
    notes: tuple[str, ...] = ()  # what of it could not be used, and why
