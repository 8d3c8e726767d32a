"""What a rank records beside its ops, changed while it runs."""

from __future__ import annotations

from msgspec import Struct

from frtop_probe.wire.declaration import RankRequest, Response
from frtop_probe.wire.values import Int


class NumbersOrder(Struct, frozen=True, array_like=True):
    """What a rank is to sample: of every `every`-th op of `groups` (its own ids; none: all).

    It ends after `ops` ops and `steps` steps of optimizers, or after `seconds`. With neither ops
    nor steps, nothing is sampled any more. It begins in step `from_step`, or some seconds later if
    that does not come, so that ranks sample the same ops; 0: at once. `by` names the operator who
    asks. An order to end may name a `watch`, and then ends no other one.
    """

    every: Int = 1
    ops: Int = 0
    seconds: Int = 60
    inputs: bool = True
    groups: tuple[Int, ...] = ()
    steps: Int = 0
    from_step: Int = 0
    by: str = ""
    watch: Int = 0


class NumberState(Struct, frozen=True, array_like=True):
    """What a rank samples now, and how much of it is left.

    `unseen` counts ops whose result was not read, as nobody was seen to wait for them, and
    `skipped` samples without figures. `failure`: the watch ended by an error of its own. `thinned`
    ops were not sampled, as the rank had no time to count them. `watch` is the number of the last
    watch: an operator sees by it that another one's has taken the place of theirs. `by` is who
    asked for what is sampled now, or else who has ended that before its end.
    """

    on: bool = False
    every: Int = 0
    ops_left: Int = 0
    seconds_left: Int = 0
    steps_left: Int = 0
    samples: Int = 0
    unseen: Int = 0
    skipped: Int = 0
    failure: str = ""
    thinned: Int = 0
    watch: Int = 0
    by: str = ""


class RecordedNow(Struct, frozen=True, array_like=True):
    """What a rank records beside ops, and how many ops and bytes its ring has.

    `sites`: the line of the program that issued an op; `modules`: module and phase that did.
    The ring can get `longer_slots` ops, for `longer_bytes` more; 0: it cannot.
    """

    numbers: NumberState = NumberState()
    phases: bool = False
    slots: Int = 0
    ring_bytes: Int = 0
    sites: bool = True
    modules: bool = False
    longer_slots: Int = 0
    longer_bytes: Int = 0


class RecordingResponse(Response, frozen=True, array_like=True, tag=True):
    """What a rank records after a `ChangeRecording`; `error` and `help` as of any answer of it."""

    host: str
    key: Int
    recorded: RecordedNow = RecordedNow()
    error: str = ""
    help: str = ""


class ChangeRecording(RankRequest, frozen=True, array_like=True, tag=True):
    """Changes what a rank records from now on; None, "" and False change nothing.

    `note` is written into its ring, with the time. A ring that was made `longer` stays so.
    """

    answer = RecordingResponse
    once = True  # a note that is sent again would be there twice
    in_rank = True
    nothing = "process {pid} has no process group yet, so there is nothing to sample: later"

    numbers: NumbersOrder | None = None
    phases: bool | None = None
    note: str = ""
    sites: bool | None = None
    modules: bool | None = None
    longer: bool = False
