"""The zoo's tables, with the recorder and without: truth, verdicts, and how soon they came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from zoo.outcomes import OUTCOMES
from zoo.runner import case_of, comes_late, description_of
from zoo.wording import NOTHING, truth_text
from zoo.worker import Run

PAGE: Final = Path(__file__).parents[2] / "dist" / "docs" / "zoo.md"
UNPREPARED_PAGE: Final = PAGE.with_name("zoo-unprepared.md")
_HEAD: Final = ("fault", "truth", "frtop", "who s", "confirmed s", "frtop on the dumps")
_UNPREPARED_HEAD: Final = (
    "fault", "truth", "with the recorder", "unprepared", "outcome", "who s", "confirmed s",
    "what was missing",
)  # fmt: skip
_LONGEST: Final = 160


def write(runs: Sequence[Run], page: Path = PAGE) -> None:
    """Writes the page of all programs."""
    rows = [_row(name, of) for name, of in _by_program(runs)]
    _write(page, "The zoo", _HEAD, [*rows, "", summary(runs)])


def write_unprepared(runs: Sequence[Run], page: Path = UNPREPARED_PAGE, other: Path = PAGE) -> None:
    """Writes the page of runs without the recorder; `other` is that of runs with it."""
    recorded = _recorded_verdicts(other)
    lines = [_unprepared_row(name, of, recorded) for name, of in _by_program(runs)]
    lines += ["", summary_unprepared(runs)]
    if skipped := {run.name: run.skipped for run in runs if run.skipped}:
        text = "; ".join(f"{name} {why}" for name, why in sorted(skipped.items()))
        lines += ["", f"Left out: {text}."]
    _write(page, "The zoo without the recorder", _UNPREPARED_HEAD, lines)


def summary(runs: Sequence[Run]) -> str:
    """Returns how many runs came out right."""
    ran = [run for run in runs if not run.skipped]
    right = sum(not run.failure for run in ran)
    names = len({run.name for run in ran})
    return f"{names} programs, {len(ran)} runs, everything right in {right}."


def summary_unprepared(runs: Sequence[Run]) -> str:
    """Returns how many runs without the recorder came out in which way."""
    ran = [run for run in runs if not run.skipped]
    counts = ", ".join(f"{sum(_outcome(run) == one for run in ran)} {one}" for one in OUTCOMES)
    names = len({run.name for run in ran})
    return f"{names} programs without the recorder, {len(ran)} runs: {counts}."


def _write(page: Path, title: str, head: Sequence[str], lines: Iterable[str]) -> None:
    table = (f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join((f"# {title}", "", *table, "")))


def _by_program(runs: Iterable[Run]) -> list[tuple[str, list[Run]]]:
    """Returns the runs of each program in the order of its modes, healthy controls last."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if not run.skipped:
            found.setdefault(run.name, []).append(run)
    for ran in found.values():
        ran.sort(key=lambda run: case_of(run.name).modes.index(run.mode))
    return sorted(found.items(), key=lambda one: (one[0].startswith("healthy/"), one[0]))


def _recorded_verdicts(page: Path) -> dict[str, str]:
    """Returns the verdicts of the other page, by description; none where it was not written."""
    rows = page.read_text().splitlines() if page.exists() else []
    cells = [row.strip("| ").split(" | ") for row in rows if row.startswith("| ")]
    return {row[0]: row[2] for row in cells if len(row) > 2}


def _row(name: str, runs: list[Run]) -> str:
    wrong = "**wrong** " if any(run.failure for run in runs) else ""
    return _cells(
        description_of(name).rstrip("."),
        truth_text(case_of(name)),
        wrong + _each(_said(run) for run in runs),
        *_times(runs),
        _each(run.dumps for run in runs),
    )


def _unprepared_row(name: str, runs: list[Run], recorded: dict[str, str]) -> str:
    what = description_of(name).rstrip(".")
    return _cells(
        what,
        truth_text(case_of(name)),
        recorded.get(what, ""),
        # Each of several ranks may be undecided.
        _each(" + ".join(dict.fromkeys(_said(run).split(" + "))) for run in runs),
        " / ".join(_marked(run) for run in runs),
        *_times(runs),
        _each(_cut(run.reason) for run in runs if run.reason),
    )


def _times(runs: Sequence[Run]) -> tuple[str, str]:
    def text(seconds: Iterable[float | None]) -> str:
        return " / ".join("-" if one is None else f"{one:.1f}" for one in seconds)

    return text(run.who_s for run in runs), text(run.confirmed_s for run in runs)


def _cells(*cells: str) -> str:
    escaped = [cell.replace("|", "\\|") or "-" for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _said(run: Run) -> str:
    """Returns the verdicts of a run, or the health where there were none."""
    return run.health if run.verdict == NOTHING else run.verdict


def _each(texts: Iterable[str]) -> str:
    """Joins the texts of the modes, equal ones once."""
    return " / ".join(text for text in dict.fromkeys(texts) if text)


def _outcome(run: Run) -> str:
    """A worker that ended has no outcome: that is wrong, too."""
    return "wrong" if run.failure else run.reached


def _marked(run: Run) -> str:
    outcome = _outcome(run)
    text = f"**{outcome}**" if outcome == "wrong" else outcome
    return f"{text} (came late)" if comes_late(run.name, run.mode) else text


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
