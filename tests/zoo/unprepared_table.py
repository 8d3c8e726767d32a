"""The table of runs without the recorder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from zoo import table
from zoo.outcomes import OUTCOMES
from zoo.runner import case_of, comes_late, description_of
from zoo.wording import truth_text
from zoo.worker import Run

PAGE: Final = table.PAGE.with_name("zoo-unprepared.md")
_HEAD: Final = (
    "fault", "truth", "with the recorder", "unprepared", "outcome", "who s", "confirmed s",
    "what was missing",
)  # fmt: skip
_LONGEST: Final = 160


def write(runs: Iterable[Run], page: Path = PAGE, other: Path = table.PAGE) -> None:
    """Writes the page of all programs; `other` is the one of runs with the recorder."""
    text = lines(list(runs), recorded_verdicts(other))
    table.write_page(page, "The zoo without the recorder", text)


def recorded_verdicts(page: Path) -> dict[str, str]:
    """Returns the verdicts of the other page, by description; none where it was not written."""
    rows = page.read_text().splitlines() if page.exists() else []
    cells = [row.strip("| ").split(" | ") for row in rows if row.startswith("| ")]
    return {row[0]: row[2] for row in cells if len(row) > 2}


def lines(runs: Sequence[Run], recorded: dict[str, str]) -> list[str]:
    """Returns the table, sorted by family, its summary, and the programs that were left out."""
    names = sorted({run.name for run in runs if not run.skipped}, key=table.order)
    out = [f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|"]
    out += [_row(name, [run for run in runs if run.name == name], recorded) for name in names]
    out += ["", summary(runs)]
    if skipped := {run.name: run.skipped for run in runs if run.skipped}:
        text = "; ".join(f"{name} {why}" for name, why in sorted(skipped.items()))
        out += ["", f"Left out: {text}."]
    return out


def summary(runs: Sequence[Run]) -> str:
    """Returns how many runs came out in which way."""
    ran = [run for run in runs if not run.skipped]
    counts = ", ".join(f"{sum(_outcome(run) == one for run in ran)} {one}" for one in OUTCOMES)
    names = len({run.name for run in ran})
    return f"{names} programs without the recorder, {len(ran)} runs: {counts}."


def _row(name: str, runs: list[Run], recorded: dict[str, str]) -> str:
    modes = case_of(name).modes
    runs = sorted(runs, key=lambda run: modes.index(run.mode))
    what = description_of(name).rstrip(".")
    return table.row((
        what,
        truth_text(case_of(name)),
        recorded.get(what, ""),
        table.each(said for run in runs if (said := _said(run))),
        " / ".join(_marked(run) for run in runs),
        " / ".join(table.seconds(run.who_s) for run in runs),
        " / ".join(table.seconds(run.confirmed_s) for run in runs),
        table.each(_cut(run.reason) for run in runs if run.reason),
    ))  # fmt: skip


def _said(run: Run) -> str:
    """Returns the verdicts, equal ones once: each of several ranks may be undecided."""
    return " + ".join(dict.fromkeys(table.said(run).split(" + ")))


def _outcome(run: Run) -> str:
    """A worker that ended has no outcome: that is wrong, too."""
    return "wrong" if run.failure else run.reached


def _marked(run: Run) -> str:
    outcome = _outcome(run)
    text = f"**{outcome}**" if outcome == "wrong" else outcome
    return f"{text} (came late)" if comes_late(run.name, run.mode) else text


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
