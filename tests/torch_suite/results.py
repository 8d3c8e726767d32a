"""What came of a test without and with the recorder, and whether that is the same. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

State = Literal["passed", "failed", "skipped", "timeout", "crashed"]
STATES: Final[tuple[State, ...]] = ("passed", "failed", "skipped", "timeout", "crashed")
Judgement = Literal["equal", "flaky", "different", "finding"]


class Ended(msgspec.Struct, frozen=True):
    """How one run of a test ended. `detail` is the last line of its error, or why it skipped."""

    state: State
    detail: str
    seconds: float


class Recorded(msgspec.Struct, frozen=True):
    """What the recorders of one run's ranks left.

    `off` counts rings whose recorder switched itself off, `lost` signatures, sites and pending
    ops that found no room, `lines` what frtop wrote into the test's output.
    """

    rings: int = 0
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


class Counts(msgspec.Struct, frozen=True):
    """Sums over the results of a suite, of the first pair of each test.

    `with_ops` counts the tests in which at least one op was recorded.
    """

    tests: int
    without: dict[State, int]
    recorded: dict[State, int]
    judged: dict[Judgement, int]
    with_ops: int
    rings: int
    ops: int
    lost: int
    seconds: tuple[float, float]


def count(results: Iterable[Result]) -> Counts:
    found = list(results)
    first = [result.pairs[0] for result in found]
    judged: dict[Judgement, int] = {}
    for result in found:
        judged[result.judgement] = judged.get(result.judgement, 0) + 1
    return Counts(
        tests=len(found),
        without=_states(pair.without for pair in first),
        recorded=_states(pair.recorded for pair in first),
        judged=judged,
        with_ops=sum(pair.recorder.ops > 0 for pair in first),
        rings=sum(pair.recorder.rings for pair in first),
        ops=sum(pair.recorder.ops for pair in first),
        lost=sum(pair.recorder.lost for pair in first),
        seconds=(
            sum(pair.without.seconds for pair in first),
            sum(pair.recorded.seconds for pair in first),
        ),
    )


def _states(runs: Iterable[Ended]) -> dict[State, int]:
    states = [run.state for run in runs]
    return {state: states.count(state) for state in STATES if state in states}
