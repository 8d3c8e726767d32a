"""What operators ask of an agent."""

from __future__ import annotations

from msgspec import Struct

from frtop_probe.features.profile.messages import ProfileDataRequest, ProfileRequest, SampleRequest
from frtop_probe.features.tensor_checks.messages import NumbersOrder
from frtop_probe.wire.values import Int


class StateRequest(Struct, frozen=True, array_like=True, tag="state"):
    """Requests the full state; answered with a full `Update`.

    With `read_only`, the operator gives up acting: from then on the agent refuses it on this
    connection, whatever the key's right.
    """

    id: Int
    read_only: bool = False


class SnapshotRequest(Struct, frozen=True, array_like=True, tag="look"):
    """Requests snapshots of some ranks: `/proc` of them and their descendants, the last `ops` ops.

    With `stacks`, also a non-blocking dump of their threads, and of the processes in `pids` that
    are descendants of such a rank.
    """

    id: Int
    keys: tuple[Int, ...]
    stacks: bool = True
    ops: Int = 0
    pids: tuple[Int, ...] = ()


class TimeRequest(Struct, frozen=True, array_like=True, tag="time"):
    """Requests the agent's clocks; half of the round trip bounds the error of the comparison.

    `shown` are those of its ranks without a recorder that the operator shows: the others are
    followed with less detail. None: the operator does not say.
    """

    id: Int
    shown: tuple[Int, ...] | None = None


class HistoryRequest(Struct, frozen=True, array_like=True, tag="history"):
    """Requests the ops that a rank's ring still has, the newest `limit` (0: all).

    With a `group` (the rank's own id of it), only that group's collectives with the numbers
    `first` to `last`. With `columns`, a history that is long may come as columns.
    """

    id: Int
    key: Int
    limit: Int = 0
    group: Int = 0
    first: Int = 0
    last: Int = 0
    columns: bool = False


class TensorsRequest(Struct, frozen=True, array_like=True, tag="tensors"):
    """Requests a summary of the tensors of a rank's pending op `sequence` (0: of all).

    An act, not a reading: it makes the rank work, and shows data. `devices`: a person asks, so
    memory of devices is read, too, where the job was started for that.
    """

    id: Int
    key: Int
    sequence: Int = 0
    devices: bool = False


class DataRequest(Struct, frozen=True, array_like=True, tag="data"):
    """Requests bytes of one tensor of a pending op: `size` bytes from `offset` on. An act.

    `index` counts the tensors of the op in the order of `TensorsResponse`.
    """

    id: Int
    key: Int
    sequence: Int
    index: Int
    offset: Int
    size: Int


class NativeStacksRequest(Struct, frozen=True, array_like=True, tag="native"):
    """Requests the stacks of a rank's threads with their frames of C and C++.

    An act: the rank's process stands still while they are taken, for up to some seconds. An agent
    takes those of one rank at a time, and refuses a second request meanwhile ("busy").
    """

    id: Int
    key: Int


class StatisticsRequest(Struct, frozen=True, array_like=True, tag="statistics"):
    """Requests what ranks did from `since_ns` to `until_ns` (0: now), by the agent's clock.

    What is asked for is what it costs: `calls`, the newest `samples` ops of each group and the
    newest `steps` steps of each rank.
    """

    id: Int
    keys: tuple[Int, ...]
    since_ns: Int = 0
    until_ns: Int = 0
    calls: bool = True
    samples: Int = 0
    steps: Int = 0


class GaugeHistoryRequest(Struct, frozen=True, array_like=True, tag="gauges"):
    """Requests what the agent remembers of the host's gauges, some ten minutes.

    With `gauges`, only those of these names. With `points`, as many as that at most: each is then
    of some samples in a row.
    """

    id: Int
    gauges: tuple[str, ...] = ()
    points: Int = 0


class ControlRequest(Struct, frozen=True, array_like=True, tag="control"):
    """Changes what a rank records from now on; None, "" and False change nothing. An act.

    `note` is written into its ring, with the time. A ring that was made `longer` stays so.
    """

    id: Int
    key: Int
    numbers: NumbersOrder | None = None
    phases: bool | None = None
    note: str = ""
    sites: bool | None = None
    modules: bool | None = None
    longer: bool = False


class NumbersRequest(Struct, frozen=True, array_like=True, tag="numbers"):
    """Requests the samples of a rank after number `after`, the oldest first. An act."""

    id: Int
    key: Int
    after: Int = 0


Request = (
    StateRequest
    | SnapshotRequest
    | TimeRequest
    | HistoryRequest
    | TensorsRequest
    | DataRequest
    | NativeStacksRequest
    | StatisticsRequest
    | GaugeHistoryRequest
    | ProfileRequest
    | ProfileDataRequest
    | SampleRequest
    | ControlRequest
    | NumbersRequest
)
