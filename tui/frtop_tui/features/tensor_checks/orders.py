"""What an operator wants ranks to record, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from frtop_probe.features.tensor_checks.messages import NumbersOrder, NumberState
from frtop_probe.wire.recording import RecordedNow
from frtop_tui.connect.followers import Order
from frtop_tui.features.tensor_checks.comparison import Findings
from frtop_tui.features.tensor_checks.samples import GroupNames, RankSample
from frtop_tui.job.groups import Identifier

NO_FINDINGS: Final = Findings()
NO_NAMES: Final = GroupNames({})
NOTHING: Final = NumbersOrder(1, 0, 0, inputs=False)
"""Asks ranks to stop sampling."""
MOST_NOTE: Final = 200
"""Characters of a note; a rank cuts off the rest."""


def note_problem(text: str) -> str:
    """What is wrong with a note; "" if nothing is."""
    if not text:
        return "write the text of the note"
    if len(text) > MOST_NOTE:
        return f"a note has up to {MOST_NOTE} characters; this one has {len(text):,}"
    return ""


@dataclass(frozen=True, slots=True)
class RecordOrder(Order):
    """What ranks should record. `group` None: the ops of all groups."""

    ranks: tuple[int, ...]
    numbers: NumbersOrder | None = None
    group: Identifier | None = None
    switches: Mapping[str, bool] = field(default_factory=dict)
    note: str = ""
    longer: bool = False  # a longer history, until the rank ends
    own: bool = False  # to stop only what this operator has started

    @property
    def samples(self) -> bool:
        """Whether ranks should start sampling."""
        return self.numbers is not None and bool(self.numbers.ops or self.numbers.steps)


@dataclass(frozen=True, slots=True)
class RankControl:
    """The outcome of the last order to a rank."""

    recorded: RecordedNow | None = None
    problem: str = ""
    due: bool = False


@dataclass(frozen=True, slots=True)
class JobNumbers:
    """What ranks record and have sampled; the same object until something changes."""

    controls: Mapping[int, RankControl]
    states: Mapping[int, NumberState]
    problems: Mapping[int, str]
    samples: int = 0
    lost: int = 0
    found: Findings = NO_FINDINGS
    names: GroupNames = NO_NAMES
    gone: Mapping[int, str] = field(default_factory=dict)
    """Ranks that stopped sampling for this operator before the watch ended, and why."""
    places: Mapping[int, str] = field(default_factory=dict)
    """PID and host of ranks that the findings name."""
    unfetched: int = 0
    """Samples that ranks have and that have not been asked for yet."""
    taken: Sequence[RankSample] = ()
    """The samples that `found` compares."""
    orders: int = 0
    """Orders that were sent to ranks."""

    @property
    def runs(self) -> bool:
        """Whether a rank samples, or has not answered yet."""
        return any(one.due for one in self.controls.values()) or any(
            state.on for state in self.states.values()
        )


NO_NUMBERS: Final = JobNumbers({}, {}, {})
