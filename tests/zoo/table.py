"""The zoo's table: ground truth, verdicts, and how soon frtop reached them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from zoo.dumps import NO_DUMPS
from zoo.runner import case_of, description_of
from zoo.wording import NOTHING, truth_text
from zoo.worker import Run

PAGE: Final = Path(__file__).parents[2] / "dist" / "docs" / "zoo.md"
_HEAD: Final = (
    "fault", "truth", "frtop", "who s", "confirmed s", "torchfrtrace",
    "the same, groups repaired", "frtop on the dumps",
)  # fmt: skip


def write(runs: Iterable[Run], page: Path = PAGE) -> None:
    """Writes the page of all programs."""
    write_page(page, "The zoo", lines(list(runs)))


def write_page(page: Path, title: str, text: Iterable[str]) -> None:
    """Writes a page of a title and lines."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join((f"# {title}", "", *text, "")))


def lines(runs: Sequence[Run]) -> list[str]:
    """Returns the table, sorted by family, and its summary."""
    names = sorted({run.name for run in runs if not run.skipped}, key=order)
    out = [f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|"]
    out += [_row(name, [run for run in runs if run.name == name]) for name in names]
    return [*out, "", summary(runs)]


def summary(runs: Sequence[Run]) -> str:
    """Returns a summary in a few sentences."""
    ran = [run for run in runs if not run.skipped]
    right = [run for run in ran if not run.failure]
    text = (
        f"{len({run.name for run in ran})} programs, {len(ran)} runs,"
        f" everything right in {len(right)}."
    )
    dumped = [run for run in ran if run.torchfrtrace and run.torchfrtrace != NO_DUMPS]
    if dumped:
        text += (
            f" {len(dumped)} runs left dumps."
            f" torchfrtrace, on the dumps as they are, {_count(dumped, 'torchfrtrace')}."
            f" After their groups were repaired, it {_count(dumped, 'repaired')}."
            f" frtop, on the dumps as they are, {_count(dumped, 'frtop')}."
        )
    return text


def _count(runs: Sequence[Run], column: str) -> str:
    """Counts how often a tool crashes, blames innocents, is right, or names no rank."""
    texts: list[str] = [getattr(run, column) for run in runs]
    crashes = sum("crashes" in text for text in texts)
    innocent = sum("innocent" in text for text in texts)
    involved = sum(text.startswith("blames") and "innocent" not in text for text in texts)
    nobody = (
        len(texts)
        - crashes
        - involved
        - sum("innocent" in text and "crashes" not in text for text in texts)
    )
    return (
        f"crashes on {crashes}, names innocents in {innocent}, only those involved in {involved},"
        f" nobody in {nobody}"
    )


def order(name: str) -> tuple[bool, str]:
    """Sorts healthy controls last."""
    return name.startswith("healthy/"), name


def _row(name: str, runs: list[Run]) -> str:
    case = case_of(name)
    runs = sorted(runs, key=lambda run: case.modes.index(run.mode))
    cells = [
        description_of(name).rstrip("."),
        truth_text(case),
        each(said(run) for run in runs),
        " / ".join(seconds(run.who_s) for run in runs),
        " / ".join(seconds(run.confirmed_s) for run in runs),
        each(run.torchfrtrace for run in runs),
        each(run.repaired for run in runs),
        each(run.frtop for run in runs),
    ]
    if any(run.failure for run in runs):
        cells[2] = f"**wrong** {cells[2]}"
    return row(cells)


def row(cells: Iterable[str]) -> str:
    """Returns a row of a table."""
    escaped = [cell.replace("|", "\\|") or "-" for cell in cells]
    return f"| {' | '.join(escaped)} |"


def said(run: Run) -> str:
    """Returns the verdicts of a run, or the health where there were none."""
    return run.health if run.verdict == NOTHING else run.verdict


def each(texts: Iterable[str]) -> str:
    """Joins the texts of the modes, equal ones once."""
    return " / ".join(dict.fromkeys(texts))


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
