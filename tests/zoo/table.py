"""The table of `docs/diagnosis.md`: what is true, what was said, and how soon."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from zoo.keeper import case_of, story_of
from zoo.wording import truth_text
from zoo.worker import Run

PAGE: Final = Path(__file__).parents[2] / "docs" / "diagnosis.md"
BEGIN: Final = "<!-- zoo: written by make zoo -->"
END: Final = "<!-- zoo: end -->"
_HEAD: Final = (
    "fault", "truth", "frtop", "who s", "confirmed s", "torchfrtrace",
    "the same, groups mended", "frtop on the dumps",
)  # fmt: skip


def write(runs: Iterable[Run], page: Path = PAGE) -> None:
    """Puts the table between its markers.

    Raises:
        ValueError: the page has no markers.
    """
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: {BEGIN} ... {END}")
    page.write_text("\n".join((before + BEGIN, "", *lines(list(runs)), "", END + after)))


def lines(runs: Sequence[Run]) -> list[str]:
    """The table, families in order, and its sum below."""
    names = sorted({run.name for run in runs if not run.skipped}, key=_order)
    out = [f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|"]
    out += [_row(name, [run for run in runs if run.name == name]) for name in names]
    return [*out, "", summary(runs)]


def summary(runs: Sequence[Run]) -> str:
    """The sum of it in a few sentences."""
    ran = [run for run in runs if not run.skipped]
    right = [run for run in ran if not run.amiss]
    told = (
        f"{len({run.name for run in ran})} programs, {len(ran)} runs,"
        f" everything right in {len(right)}."
    )
    with_dumps = [run for run in ran if run.torchfrtrace and run.torchfrtrace != "no dumps"]
    if with_dumps:
        told += (
            f" Of {len(with_dumps)} jobs that left dumps torchfrtrace"
            f" crashes on {_count(with_dumps, 'torchfrtrace', 'crashes')} as they are;"
            f" with mended groups it crashes on {_count(with_dumps, 'mended', 'crashes')},"
            f" names innocents in {_count(with_dumps, 'mended', 'innocent')}"
            f" and nobody in {_count(with_dumps, 'mended', 'nothing')}."
            f" frtop names innocents in {_count(with_dumps, 'frtop', 'innocent')} of them"
            f" and nobody in {_count(with_dumps, 'frtop', 'nothing')}."
        )
    return told


def _count(runs: Iterable[Run], column: str, word: str) -> int:
    return sum(word in getattr(run, column) for run in runs)


def _order(name: str) -> tuple[bool, str]:
    """Healthy controls last."""
    return name.startswith("healthy/"), name


def _row(name: str, runs: list[Run]) -> str:
    runs = sorted(runs, key=lambda run: run.mode != "sync")
    case = case_of(name)
    cells = [
        story_of(name).rstrip("."),
        truth_text(case),
        _each(run.said if run.said != "nothing" else run.health for run in runs),
        " / ".join(_seconds(run.who_s) for run in runs),
        " / ".join(_seconds(run.confirmed_s) for run in runs),
        _each(run.torchfrtrace for run in runs),
        _each(run.mended for run in runs),
        _each(run.frtop for run in runs),
    ]
    if any(run.amiss for run in runs):
        cells[2] = f"**amiss** {cells[2]}"
    escaped = [cell.replace("|", "\\|") or "-" for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _each(texts: Iterable[str]) -> str:
    """Once what both modes have in common."""
    return " / ".join(dict.fromkeys(texts))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
