"""The view `:record`, the command `:note`, and the line below a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frtop_tui.features.tensor_checks.finding_words import brief_finding
from frtop_tui.features.tensor_checks.orders import JobNumbers, RecordOrder, note_problem
from frtop_tui.features.tensor_checks.view import RecordScreen, target_ranks
from frtop_tui.job.units import counted
from frtop_tui.screens.completion import CommandError, CommandScope, Outcome, TypedCommand
from frtop_tui.screens.contributed import FeatureApp, FeatureKey, PlacedCommand, Screens, View
from frtop_tui.screens.messages import FeatureMessage
from frtop_tui.text.lines import WordLine


class WriteNote(FeatureMessage):
    """Write a note into the rings of ranks."""

    def __init__(self, order: RecordOrder) -> None:
        super().__init__()
        self.order = order


async def _write_note(app: FeatureApp, event: WriteNote) -> None:
    app.source.do(event.order)
    app.notify(f"Noted on {counted(len(event.order.ranks), 'rank')}.", timeout=4)


def _note(text: str, situation: CommandScope) -> Outcome:
    ranks = target_ranks(situation.frame, situation.marked)
    if problem := note_problem(text):
        raise CommandError(problem)
    if not ranks:
        raise CommandError("no rank is reporting")
    return WriteNote(RecordOrder(ranks, note=text))


def _remark(news: Mapping[str, Any]) -> WordLine | None:
    numbers: JobNumbers = news["tensor_checks"]
    found = brief_finding(numbers.found, numbers.names)
    return WordLine("numbers", f"{found}: `:record`", "warn") if found else None


NOTED: Final = "write a note into the rings of the marked ranks, or of all"
SCREENS: Final = Screens(
    views=(
        View("record", RecordScreen, "what ranks record, changed while they run; sampled values",
             place=110),
    ),
    commands=(
        PlacedCommand(20, TypedCommand("note", NOTED, _note, "TEXT", key="a", needs="order")),
    ),
    keys=(FeatureKey("a", "note", "note", NOTED, action="command('note ')"),),
    handlers={WriteNote: _write_note},
    styles=("tensor_checks/view.tcss",),
    remark=_remark,
)  # fmt: skip
