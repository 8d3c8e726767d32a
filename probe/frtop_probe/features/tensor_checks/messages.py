"""Numbers that ranks sample in their ops and steps."""

from __future__ import annotations

from typing import Final

from msgspec import MsgspecError, Struct, convert, structs

from frtop_probe.wire.declaration import RankRequest, Response
from frtop_probe.wire.ops import Issuer, Site
from frtop_probe.wire.recording import RecordedNow, Setting
from frtop_probe.wire.values import Int, Real, Value

SETTING: Final = "numbers"
"""The name of the setting that an order changes."""


class NumbersOrder(Struct, frozen=True):
    """Asks a rank to sample every `every`-th op of `groups` (its own ids; none: all).

    It ends after `ops` ops and `steps` optimizer steps, or after `seconds`. An order without
    ops and steps ends sampling. It begins in step `from_step`, or some seconds later if that step
    does not come, so that ranks sample the same ops; 0: at once. `by` names the operator who
    asks. An order to end sampling may name a `watch`, and then ends only that one.
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

    def setting(self) -> dict[str, Setting]:
        """The change of settings that carries this order."""
        return {SETTING: structs.asdict(self)}


class NumberState(Struct, frozen=True):
    """What a rank samples now, and how much of it is left.

    `unseen` counts ops whose result was not read because the rank saw no wait for them;
    `skipped`: samples without figures. `failure`: the watch ended by an error of its own. `thinned`
    counts ops that were not sampled, because the rank had no time for them. `watch` is the number
    of the last watch: it shows an operator that another one's has replaced theirs. `by` names who
    asked for the current watch, or else who ended it early.
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

    @classmethod
    def of(cls, recorded: RecordedNow) -> NumberState:
        """The state among the settings of a rank; a rank without the feature samples nothing."""
        try:
            return convert(recorded.settings.get(SETTING, {}), cls)
        except MsgspecError:
            return cls()


class NumberSample(Value, frozen=True):
    """Statistics of an op's input or output, or of one parameter or gradient.

    `n` counts the samples of a rank. `number` is the op's number in its group, the place of a
    parameter in its optimizer, or how often the loss scale was updated in the step. `role`
    is "input", "output", "sent", "received", "gradient", "parameter", "loss_scale" (after an
    update) or "found_inf" (before it: the maximum is not 0 if gradients had an Inf or NaN). For an
    op, `taken` says when: "issue", "wait" (a wait for it had returned), "late" (likewise, but it
    had ended before), "backward" (a backward had ended) or "step" (an optimizer step began): in the
    last three cases the program may have changed it. What an isend sends is read twice, at its
    issue and at its wait: the program must not change it in between. Otherwise `taken` says whose:
    "optimizer N" or "scaler N". `site` is the rank's own id of the line.

    The rank read the first `seen` of `size` bytes; `checksum` covers these. The figures ignore
    NaN and Inf, and are None if no other value exists. `subnormals` are below the smallest
    normal value of their dtype. `error` says why there are no figures. A `shard` differs on
    each rank and has no checksum.

    `issuer` is the rank's own id of an op's issuer, 0 if the rank does not record modules.
    `parameter` is the modules' name of a parameter or gradient, if its optimizer has no name
    for it; for a DDP op, of the gradient with the first NaN, or else the first Inf.

    A message has the peer's place in the group (-1: any), the tag, and its number among the
    messages from this sender to this receiver with this tag (0: not counted). `shape` has the first
    shapes: "[256, 256]", "[3] x 4, [8]".
    """

    n: Int
    group: Int
    number: Int
    kind: str
    role: str
    taken: str
    step: Int
    at_ns: Int
    site: Int
    dtype: str
    elements: Int
    size: Int
    seen: Int
    checksum: str = ""
    nans: Int = 0
    infinities: Int = 0
    zeros: Int = 0
    subnormals: Int = 0
    minimum: Real | None = None
    maximum: Real | None = None
    magnitude: Real | None = None  # the mean of magnitudes
    norm: Real | None = None
    error: str = ""
    shard: bool = False
    issuer: Int = 0
    parameter: str = ""
    peer: Int = -1
    tag: Int = 0
    message: Int = 0
    shape: str = ""


class SamplesResponse(Response, frozen=True, array_like=True, tag=True):
    """A rank's samples, with lines and issuers of their ops by the rank's own ids.

    `lost` counts requested samples that newer ones had overwritten.
    """

    host: str
    key: Int
    samples: tuple[NumberSample, ...] = ()
    sites: tuple[tuple[Int, Site], ...] = ()
    lost: Int = 0
    state: NumberState = NumberState()
    error: str = ""
    help: str = ""
    issuers: tuple[tuple[Int, Issuer], ...] = ()


class ReadSamples(RankRequest, frozen=True, array_like=True, tag=True):
    """Requests the samples of a rank after number `after`, the oldest first."""

    answer = SamplesResponse
    in_rank = True
    at_once = 2  # an agent works on four requests of one operator
    nothing = "process {pid} has no process group yet, so there is nothing to sample: try later"

    after: Int = 0
