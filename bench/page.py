"""Writes docs/benchmarks.md: runs measurements, shows what each prints, and draws three of them.

    python -m bench.page [NAME ...]    these, or all that the page has; other texts stay
    python -m bench.page --again       runs nothing: the page anew from the texts that it has

A text is what `python -m bench NAME` printed, below a line with date, processors and load.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench import recorder_cost, steps
from bench.paired import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = "benchmarks.md"

Draw = Callable[[str], "Figure"]


class Part(NamedTuple):
    """A measurement on the page; `seen` says what its picture shows."""

    title: str
    what: str
    draw: Draw | None = None
    seen: str = ""


def main() -> None:
    """Runs what the command line names, and writes the page after each."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--again", action="store_true", help="run nothing")
    options = parser.parse_args()
    if unknown := set(options.names) - set(PARTS):
        parser.error(f"not on the page: {', '.join(sorted(unknown))}")
    if options.again:
        write({}, DOCS)
        return
    for name in options.names or PARTS:
        print(f"{name} …", flush=True)
        write({name: measure(name)}, DOCS)


def measure(name: str) -> str:
    """Runs a measurement and returns its text."""
    header = (
        f"# {dt.datetime.now().astimezone().date()}, {os.cpu_count()} processors, "
        f"load {os.getloadavg()[0]:.1f}\n"
    )
    command = [sys.executable, "-W", "ignore", "-m", "bench", name]
    return header + subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def write(measured: Mapping[str, str], docs: Path) -> None:
    """Writes the page and its pictures below `docs`; what was not measured stays.

    Raises:
        ValueError: a text does not have what its picture shows; then nothing is written.
    """
    texts = {**texts_of(docs / PAGE), **measured}
    page, pictures = [INTRODUCTION], dict[Path, "Figure"]()
    for name, part in PARTS.items():
        if name not in texts:
            continue
        text = texts[name].strip()
        page += [f"## {part.title}", part.what]
        if part.draw is not None:
            picture = f"pictures/benchmarks-{name}.svg"
            pictures[docs / picture] = part.draw(text)
            page.append(f"![{part.seen}]({picture})\n\n{part.seen}")
        page.append(f"    python -m bench {name}\n\n```text\n{text}\n```")
    for path, figure in pictures.items():
        _save(figure, path)
    (docs / PAGE).write_text("\n\n".join(page) + "\n")


_TEXT: Final = re.compile(
    r"^    python -m bench (\w+)\n\n```text\n(.*?)\n```$", re.MULTILINE | re.DOTALL
)


def texts_of(page: Path) -> dict[str, str]:
    """Reads the texts that a page has; none if there is no page yet."""
    return dict(_TEXT.findall(page.read_text())) if page.exists() else {}


INTRODUCTION: Final = """\
# Benchmarks

`python -m bench.page` makes this page: it runs the measurements one after the other and shows what
they print, unchanged. The first line of each text says when, on how many processors, and beside how
much other load. [in-a-job.md](in-a-job.md#what-it-costs) says what the figures mean for a job.
Measure on the machine that you care about: `python -m bench.page steps` takes some minutes.
The texts that you do not measure again stay."""


# -- what the texts say


@dataclass(frozen=True, slots=True)
class Cost:
    """What a kernel adds to an op, in µs."""

    op: str
    kernel: str
    median: float
    p99: float
    p999: float


@dataclass(frozen=True, slots=True)
class Added:
    """What is added to a step, in percent; None: there is no figure, `note` says why."""

    kind: str
    way: str
    percent: Interval | None
    note: str = ""


_COST: Final = re.compile(r"^(\S.*?) +\d+\.\d((?: *[+-]\d+\.\d)+)$", re.MULTILINE)
_KERNELS: Final = re.compile(r"^op +bare((?: +\w+)+)$", re.MULTILINE)
_US: Final = r"\S+ \(\S+ … \S+\)"
_ROW: Final = re.compile(rf"^(.*?) +[\d.]+ ms *{_US} +(\S+) \((\S+) … (\S+)\) +\S+ +\d+")
_KIND: Final = re.compile(r"^(\S.*?) +without +us +%")
_WITHOUT_FIGURE: Final = re.compile(r"^  (\S.*?)  +([a-z].*)$")


def costs(text: str) -> list[Cost]:
    """Reads what `recorder_cost` prints."""
    kernels = _KERNELS.search(text)
    found = [
        Cost(op, kernel, *map(float, figures))
        for op, added in (row.groups() for row in _COST.finditer(text))
        for kernel, figures in zip(
            kernels[1].split() if kernels else (),
            zip(*[iter(re.findall(r"[+-]\d+\.\d", added))] * 3, strict=True),
            strict=True,
        )
    ]
    return _some(found, "recorder_cost")


def of_steps(text: str) -> list[Added]:
    """Reads the rows of wall time that `steps` prints; the way is the kernel, and how."""
    found, kind, kernel = [], "", ""
    for line in text.splitlines():
        if (row := _ROW.match(line)) is None or not row[1].endswith("wall"):
            continue
        words = row[1].split()
        in_turn = words[:2] == ["in", "turn"]
        if not in_turn:
            kind, kernel = words[:2]
        way = f"{kernel} kernels, {'in turn' if in_turn else 'blocks'}"
        found.append(Added(kind, way, _interval(row)))
    return _some(found, "steps")


def of_ways(text: str) -> list[Added]:
    """Reads what `side_by_side` prints."""
    found, kind = [], ""
    for line in text.splitlines():
        if heading := _KIND.match(line):
            kind = heading[1]
        elif row := _ROW.match(line):
            found.append(Added(kind, row[1].strip(), _interval(row)))
        elif kind and (row := _WITHOUT_FIGURE.match(line)):
            found.append(Added(kind, row[1], None, row[2]))
    return _some(found, "side_by_side")


def _interval(row: re.Match[str]) -> Interval:
    middle, low, high = map(float, row.group(2, 3, 4))
    return Interval(low, middle, high)


def _some(found: list[Any], name: str) -> list[Any]:
    if not found:
        raise ValueError(f"the text of {name} has no row that can be drawn")
    return found


# -- pictures, for a light and a dark page: transparent, in colours that are read on both

GREY: Final = "#7d8590"
COLOURS: Final = {"native": "#2f81f7", "Python": "#d29922"}
BUDGET: Final = "#e5534b"
LEAST_US: Final = 0.1
"""What is less, or lost in the noise, is drawn here: a logarithmic axis has no zero."""
WIDTH: Final = 9.0
ROW_HEIGHT: Final = 0.27
STYLE: Final[Any] = {
    "axes.edgecolor": GREY,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.labelcolor": GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": GREY,
    "axes.titlesize": 10,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.color": GREY,
    "legend.frameon": False,
    "legend.labelcolor": GREY,
    "svg.fonttype": "none",
    "svg.hashsalt": "frtop",
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "ytick.left": False,
}


def _figure(rows: int, columns: int, heights: Sequence[int], **shared: Any) -> tuple[Figure, Any]:
    """Returns a figure with `heights[i]` lines of text in its row i, and its axes."""
    import matplotlib as mpl  # noqa: PLC0415 - who only measures does not need it
    from matplotlib.figure import Figure  # noqa: PLC0415

    mpl.rcParams.update(STYLE)
    figure = Figure(
        figsize=(WIDTH, ROW_HEIGHT * sum(heights) + 0.75 * rows + 0.4), layout="constrained"
    )
    return figure, figure.subplots(
        rows, columns, squeeze=False, height_ratios=list(heights), **shared
    )


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def _lines(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def draw_costs(text: str) -> Figure:
    """Median, p99 and p99.9 of each op, on a logarithmic axis."""
    found = costs(text)
    warm = list(dict.fromkeys(one.op for one in found if not one.op.startswith("cold: ")))
    figure, ((left, right),) = _figure(1, 2, [len(warm)], sharey=True, sharex=True)
    panels = (
        (left, "in a loop", "", recorder_cost.BUDGET_US),
        (right, "cold: 4 MB changed before each op", "cold: ", recorder_cost.COLD_BUDGET_US),
    )
    kernels = list(dict.fromkeys(one.kernel for one in found))
    for axes, title, prefix, budget in panels:
        axes.set_title(title)
        axes.axvline(budget, color=BUDGET, linestyle="--", linewidth=1)
        for one in found:
            name = one.op.removeprefix("cold: ")
            if one.op != prefix + name or name not in warm:
                continue
            at = warm.index(name) + 0.18 * (1 if one.kernel == kernels[-1] else -1)
            values = [max(LEAST_US, value) for value in (one.median, one.p99, one.p999)]
            colour = COLOURS[one.kernel]
            axes.plot([min(values), max(values)], [at, at], color=colour, linewidth=1)
            for value, marker in zip(values, "o|x", strict=True):
                axes.plot(value, at, marker=marker, color=colour, markersize=5)
        axes.set_xscale("log")
        axes.set_xlabel("µs added to an op")
    _lines(left, warm)
    marks = [*((kernel, COLOURS[kernel], "s") for kernel in kernels)]
    marks += [("median", GREY, "o"), ("p99", GREY, "|"), ("p99.9", GREY, "x")]
    for label, colour, marker in marks:
        right.plot([], [], marker=marker, color=colour, linestyle="", label=label)
    right.plot([], [], color=BUDGET, linestyle="--", label="budget of native medians")
    figure.legend(loc="outside lower center", ncols=6)
    return figure


def draw_steps(text: str) -> Figure:
    """One panel for each way to compare, because their intervals differ tenfold."""
    found = of_steps(text)
    shown = ("native kernels, in turn", "Python kernels, blocks")
    ways = [way for way in shown if any(one.way == way for one in found)]
    kinds = list(dict.fromkeys(one.kind for one in found))
    figure, (panels,) = _figure(1, len(ways), [len(kinds)], sharey=True)
    for axes, way in zip(panels, ways, strict=True):
        axes.set_title(way)
        axes.axvline(steps.BUDGET_PERCENT, color=BUDGET, linestyle="--", linewidth=1)
        for one in found:
            if one.way == way:
                _whisker(axes, kinds.index(one.kind), one, COLOURS[way.split()[0]])
        axes.set_xlabel("% added to a step")
    _lines(panels[0], kinds)
    return figure


def draw_ways(text: str) -> Figure:
    """One panel for each kind of step."""
    found = of_ways(text)
    ways = list(dict.fromkeys(one.way for one in found))
    kinds = list(dict.fromkeys(one.kind for one in found))
    figure, panels = _figure(1, len(kinds), [len(ways)], sharey=True)
    for axes, kind in zip(panels[0], kinds, strict=True):
        axes.set_title(kind)
        axes.axvline(0, color=GREY, linewidth=1)
        for one in found:
            if one.kind == kind:
                is_ours = one.way.startswith("frtop")
                _whisker(axes, ways.index(one.way), one, COLOURS["native"] if is_ours else GREY)
        axes.set_xlabel("% added to a step")
    _lines(panels[0][0], ways)
    return figure


def _whisker(axes: Axes, at: float, one: Added, colour: str) -> None:
    """Draws a median with its interval; ends that are infinite, for too few pairs, are left out."""
    if one.percent is None:
        axes.text(0, at, f" {one.note.partition(':')[0]}", va="center", fontsize=8)
        return
    percent = one.percent
    axes.plot(percent.median, at, marker="o", color=colour, markersize=5)
    axes.plot([percent.low, percent.high], [at, at], color=colour, linewidth=1.5)


PARTS: Final[dict[str, Part]] = {
    "recorder_cost": Part(
        "One op",
        "What the recorder adds to the call of an op. The fake backend answers at once, so nothing"
        " else is in the figure. Two runs of the bare op differ, too: figures below zero are that"
        " noise.",
        draw_costs,
        "What each kernel adds to an op: median, p99 and p99.9. Values below 0.1 µs stand at 0.1.",
    ),
    "steps": Part(
        "A training step",
        "What the recorder adds to a step of a small model on two ranks, with 95 % intervals; and"
        " whether losses and parameters stay equal to the bit. Rows *in turn* switch the recorder"
        " within one job, so that there are thousands of pairs.",
        draw_steps,
        "Steps with the recorder, compared with neighbours without it: median and 95 % interval."
        " The dashed line is the budget.",
    ),
    "side_by_side": Part(
        "Ways to look inside a job",
        "The same comparison for frtop at each level and for what people use today. They do not"
        " show the same: [compared.md](compared.md) says which shows what. *Nothing* compares the"
        " job with itself: where its interval is wide, the rows rank nothing.",
        draw_ways,
        "What each way adds to a step: median and 95 % interval. frtop's are blue.",
    ),
    "agent_cost": Part(
        "The agent of a host",
        "CPU, memory and traffic of an agent of eight ranks, and how fast it reads their rings.",
    ),
    "live": Part(
        "From the hang to the verdict",
        "The demo's job trains, then a data worker freezes: traffic before, and seconds until a"
        " screen, a new screen and `frtop diagnose` name it.",
    ),
    "dumps": Part(
        "Flight Recorder dumps, beside `torchfrtrace`",
        "The dumps of one hung job, read by `frtop diagnose` and by torch's own analyzer.",
    ),
    "durations": Part(
        "Recorded durations",
        "How far the recorded end of an op is from the return of its wait. Where none is exact,"
        " the recorder knows it, and screens show an upper bound.",
    ),
}
"""What is on the page, in its order."""


if __name__ == "__main__":
    main()
