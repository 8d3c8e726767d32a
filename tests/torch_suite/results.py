"""What came of a test without and with the recorder, and whether that is the same. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["passed", "failed", "skipped", "timeout", "crashed"]
Judgement = Literal["equal", "flaky", "different", "finding"]


class Ended(msgspec.Struct, frozen=True):
    """How one run of a test ended. `detail` is the last line of its error, or why it skipped."""

    state: State
    detail: str
    seconds: float


class Recorded(msgspec.Struct, frozen=True):
    """What the recorders of one run's ranks left.

    `native` counts rings that native kernels wrote, `off` rings whose recorder switched itself
    off, `lost` signatures, sites and pending ops that found no room, `lines` what frtop wrote into
    the test's output.
    """

    rings: int = 0
    native: int = 0
    ops: int = 0
    hook_errors: int = 0
    off: int = 0
    lost: int = 0
    lines: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not (self.hook_errors or self.off or self.lines)


class Pair(msgspec.Struct, frozen=True):
    """One run without the recorder, and one with it."""

    without: Ended
    recorded: Ended
    recorder: Recorded

    @property
    def equal(self) -> bool:
        return self.without.state == self.recorded.state


class Result(msgspec.Struct, frozen=True):
    """All pairs of one test: one, or more where the first was unequal."""

    test: str
    pairs: tuple[Pair, ...]

    @property
    def judgement(self) -> Judgement:
        """What follows from the pairs.

        A test is flaky only if it ends differently from time to time without the recorder, too.
        """
        if not all(pair.recorder.clean for pair in self.pairs):
            return "finding"
        if all(pair.equal for pair in self.pairs):
            return "equal"
        steady = len({pair.without.state for pair in self.pairs}) == 1
        return "different" if steady else "flaky"
