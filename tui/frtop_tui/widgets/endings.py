"""What is known where nobody waits: the verdicts, who ended in which order, where culprits stand.

Ranks that ended alike share a line, so that thousands of them can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.naming import printable
from frtop_tui.job.stack_frames import basename, user_frame
from frtop_tui.job.units import counted, duration
from frtop_tui.text.rank_words import format_exit
from frtop_tui.text.verdict import verdict_text
from frtop_tui.widgets.activity import blame_reasons, describe_activity_and_line
from frtop_tui.widgets.formats import shorten_ranks
from frtop_tui.widgets.spans import Line, join, plain, reflow, wrap

NOBODY: Final = "nobody waits for anybody"
MOST: Final = 24
"""Lines of ranks that ended; what came later follows from what came first."""
Row = tuple[tuple[int, ...], Line]
"""A line, and the ranks that it is about."""


@dataclass(slots=True)
class _Ending:
    """Ranks that ended alike, by the operator's clock."""

    words: str
    first_ns: int
    last_ns: int
    ranks: list[int] = field(default_factory=list)


def rows_without_waits(frame: Frame, width: int) -> list[Row]:
    """What stands in the place of the tree, line by line."""
    ended = sum(view.exit_info is not None for view in frame.ranks.values())
    ranks = counted(len(frame.ranks), "rank")
    head = f"{NOBODY} now: {ended:,} of {ranks} ended" if ended else NOBODY
    rows: list[Row] = [((), line) for line in wrap(head, width, "" if ended else "dim")]
    for verdict in frame.verdicts:
        said = verdict_text(verdict, frame)
        lines = wrap(said.headline, width, "strong", ("  ", ""))
        if why := said.fact("why"):
            lines += wrap(why, width, "", ("  why   ", "dim"))
        rows += [(verdict.culprits, line) for line in lines]
    endings = _endings(frame)
    first_ns = endings[0].first_ns if endings else 0
    for one in endings[:MOST]:
        rows += [(tuple(one.ranks), line) for line in _lines(one, first_ns, frame.now_ns, width)]
    if len(endings) > MOST:
        rows.append(((), plain(f"  and {len(endings) - MOST:,} other ways to end, later", "dim")))
    return rows + _standing(frame, width)


def _endings(frame: Frame) -> list[_Ending]:
    """Those that ended, the first ones first."""
    found: dict[str, _Ending] = {}
    dated = sorted((_ended_ns(view), n) for n, view in frame.ranks.items() if view.exit_info)
    for at_ns, number in dated:
        words = _words(frame.ranks[number])
        one = found.setdefault(words, _Ending(words, at_ns, at_ns))
        one.last_ns = at_ns
        one.ranks.append(number)
    return list(found.values())


def _ended_ns(view: JudgedRank) -> int:
    """When its exception was raised, or else when its process was gone."""
    ended = view.exit_info.at_ns if view.exit_info is not None else 0
    raised = view.exception.at_ns if view.exception is not None else ended
    return min(raised, ended) + view.clock_ns


def _words(view: JudgedRank) -> str:
    parts = []
    if view.exception is not None:
        error = view.exception
        where = f" at {basename(user_frame(error.frames))}" if error.frames else ""
        parts.append(f"{error.kind}: {error.text.partition(chr(10))[0]}"[:160] + where)
    if view.exit_info is not None:
        parts.append(format_exit(view.exit_info))
    return printable(", ".join(parts))


def _lines(one: _Ending, first_ns: int, now_ns: int, width: int) -> Sequence[Line]:
    who = f"rank{'s' * (len(one.ranks) > 1)} {shorten_ranks(fold(sorted(one.ranks)), 30)}"
    if one.first_ns == first_ns:
        when = f"first, {duration(max(0, now_ns - first_ns) / 1e9)} ago"
    else:
        when = f"{duration((one.first_ns - first_ns) / 1e9)} later"
    if one.last_ns - one.first_ns >= 1_000_000_000:
        when += f", the last {duration((one.last_ns - first_ns) / 1e9)} after the first of all"
    parts = (plain(f"  {who}", "dead"), plain(one.words), plain(when, "dim"))
    return reflow(join(parts), width, "    ")


def _standing(frame: Frame, width: int) -> list[Row]:
    """What culprits do that have not ended."""
    reasons = blame_reasons(frame)
    rows: list[Row] = []
    for number in reasons:
        view = frame.ranks.get(number)
        if view is None or view.exit_info is not None:
            continue
        doing = describe_activity_and_line(view, frame.now_ns, reasons)
        parts = (plain(f"  rank {number}", "late"), plain(view.state, view.state), plain(doing))
        rows += [((number,), line) for line in reflow(join(parts), width, "    ")]
        if len(rows) >= MOST:
            break
    return rows
