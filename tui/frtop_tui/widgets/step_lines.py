"""Where a training step goes, as lines: the median of all ranks, and ranks that stand out. Pure.

How much of a step communication took is known between two bounds: the time that the stepping thread
was kept by it for certain, and the time in which any op was pending at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_tui.job.units import timing, timings
from frtop_tui.statistics.step_table import StepRow
from frtop_tui.widgets.spans import Line, Span, fit, plain

PARTS: Final = ("data", "forward", "backward", "optimizer")
NO_MARKS: Final = "no step marks: `frtop_probe.step()` in the loop makes them, or an optimizer"
_TITLES: Final = {"optimizer": "optim", "took": "step", "own": "no op"}
_WIDTH: Final = 9
_LABEL: Final = 10
_BOUNDS: Final = 14


def step_lines(rows: Sequence[StepRow], width: int) -> list[Line]:
    """A title line, the medians of all ranks, then a line for each rank that stands out."""
    if not rows:
        return [plain(NO_MARKS, "dim")]
    known = [name for name in PARTS if _value(rows[0], name) is not None]
    names = [*known, "own", "took"]
    for name in ("optimizer", "forward", "backward"):
        if name in names and _LABEL + _WIDTH * len(names) + _BOUNDS > width:
            names.remove(name)
    head = "".join(fit(_TITLES.get(name, name), _WIDTH, right=True) for name in names)
    title = f"{'':{_LABEL}}{head}{fit('in ops', _BOUNDS, right=True)}"
    lines = [plain(title, "dim"), *[_line(row, names) for row in rows]]
    if missing := [name for name in PARTS if name not in known]:
        lines.append(plain(f"not recorded: {', '.join(missing)}", "dim"))
    return lines


def _value(row: StepRow, name: str) -> int | None:
    value: int | None = getattr(row, f"{name}_ns")
    return value


def _line(row: StepRow, names: Sequence[str]) -> Line:
    label = "median" if row.rank is None else f"rank {row.rank}"
    spans: list[Span] = [(fit(label, _LABEL), "strong")]
    spans += [(fit(timing(_value(row, name)), _WIDTH, right=True), "") for name in names]
    bounds = fit(timings(row.blocked_ns, row.pending_ns), _BOUNDS, right=True)
    return (*spans, (bounds, "dim"))
