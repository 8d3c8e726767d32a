"""The table of `docs/zoo.md`: what is true, what was said, and how soon."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from zoo.dumps import NO_DUMPS
from zoo.keeper import case_of, story_of
from zoo.wording import truth_text
from zoo.worker import Run

PAGE: Final = Path(__file__).parents[2] / "docs" / "zoo.md"
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
    dumped = [run for run in ran if run.torchfrtrace and run.torchfrtrace != NO_DUMPS]
    if dumped:
        told += (
            f" Of {len(dumped)} runs that left dumps, torchfrtrace {_count(dumped, 'torchfrtrace')}"
            f" as they are; after their groups were mended it {_count(dumped, 'mended')}."
            f" frtop, on the same dumps as they are, {_count(dumped, 'frtop')}."
        )
    return told


def _count(runs: Sequence[Run], column: str) -> str:
    """How often one of them crashes, is right, accuses, or says nobody's name."""
    texts: list[str] = [getattr(run, column) for run in runs]
    crashes = sum("crashes" in text for text in texts)
    innocent = sum("innocent" in text for text in texts)
    guilty = sum(text.startswith("blames") and "innocent" not in text for text in texts)
    nobody = (
        len(texts)
        - crashes
        - guilty
        - sum("innocent" in text and "crashes" not in text for text in texts)
    )
    return (
        f"crashes on {crashes}, names innocents in {innocent}, only those involved in {guilty},"
        f" nobody in {nobody}"
    )


def _order(name: str) -> tuple[bool, str]:
    """Healthy controls last."""
    return name.startswith("healthy/"), name


def _row(name: str, runs: list[Run]) -> str:
    case = case_of(name)
    runs = sorted(runs, key=lambda run: case.modes.index(run.mode))
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
    """Once what the modes have in common."""
    return " / ".join(dict.fromkeys(texts))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
