"""What `frtop doctor` found, as lines of at most 80 columns and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from frtop_probe.features.doctor.examination import Examination
from frtop_probe.features.doctor.tier import Tier, folded
from frtop_probe.proc.ptrace_refusal import Change, Obstacle
from frtop_tui.job.naming import listed, printable
from frtop_tui.job.units import counted
from frtop_tui.text.document import aligned

WIDTH: Final = 80
_WHERE: Final = 10
_COLUMNS: Final = ("tier", "mark", "by")


def doctor_lines(found: Examination) -> list[str]:
    """A table of tiers with marks, then what is closed, what that costs, and what opens it."""
    lines = [*wrapped(_head(found), "", "  "), *tier_table(found.tiers)]
    lines += obstacle_lines(found.tiers)
    lines += note_lines(note for tier in found.tiers for note in tier.notes)
    lines += ["", *wrapped(_conclusion(found), "", "")]
    return list(map(printable, lines))


def obstacle_lines(tiers: Iterable[Tier]) -> list[str]:
    """What is closed, what that costs, what opens it; groups tiers with the same obstacles."""
    found = _alike([tier for tier in tiers if tier.obstacles])
    return [line for group in found for line in ("", *_closed_lines(group))]


def note_lines(notes: Iterable[str]) -> list[str]:
    """Notes, each once, after an empty line."""
    lines = [line for one in dict.fromkeys(notes) for line in wrapped(one, "note  ", "      ")]
    return ["", *lines] if lines else []


def doctor_document(found: Examination) -> dict[str, Any]:
    """The object that `frtop doctor --json` prints; keys are only ever added."""
    return {
        "schema": "frtop-doctor-1",
        "exit_status": found.exit_status,
        "tiers": [asdict(tier) for tier in found.tiers],
        "host": asdict(found.host),
        "search": asdict(found.search),
        "service": None if found.service is None else asdict(found.service),
    }


def _head(found: Examination) -> str:
    host, search = found.host, found.search
    who = f"frtop doctor on {host.name}: uid {host.rights.uid}, Python {host.python}"
    if not search.ranks:
        torch = host.job_torch.version if host.job_torch is not None else ""
        what = f"torch {torch} of {host.job_python}" if torch else "no torch found"
        none = "no rank runs here: " if search.searched else ""
        return f"{who}; {none}for a job that has not started ({what})"
    count = len(search.ranks) + search.left_out
    pids = listed([str(rank.pid) for rank in search.ranks], 4)
    versions = {rank.torch.version for rank in search.ranks if rank.torch is not None}
    torch = f", torch {listed(sorted(versions))}" if versions else ""
    return f"{who}; beside {counted(count, 'rank')} of {search.job or 'a job'} (pid {pids}){torch}"


def tier_table(tiers: Iterable[Tier]) -> list[str]:
    """The tiers after an empty line; long lines are cut."""
    rows = ((tier.title, tier.mark, tier.basis) for tier in tiers)
    lines = aligned((_COLUMNS, *rows), _COLUMNS)
    return ["", *(line if len(line) <= WIDTH else f"{line[: WIDTH - 2]}.." for line in lines)]


def _alike(tiers: Sequence[Tier]) -> list[tuple[list[Tier], tuple[Obstacle, ...]]]:
    """Tiers with the same obstacles, together."""
    found: list[tuple[list[Tier], tuple[Obstacle, ...]]] = []
    for tier in tiers:
        for group, obstacles in found:
            if obstacles == tier.obstacles:
                group.append(tier)
                break
        else:
            found.append(([tier], tier.obstacles))
    return found


def _closed_lines(group: tuple[list[Tier], tuple[Obstacle, ...]]) -> list[str]:
    tiers, obstacles = group
    lines = wrapped(", ".join(tier.title for tier in tiers), "", "  ")
    for tier in tiers:
        prefix = "  lost  " if len(tiers) == 1 else f"  lost  {tier.title}: "
        lines += wrapped(tier.lost, prefix, "        ")
    for obstacle in obstacles:
        of = f" ({folded(obstacle.of)})" if obstacle.of else ""
        lines += wrapped(f"{obstacle.text}{of}", "  why   ", "        ")
        lines += _change_lines(obstacle.changes)
    return lines


def _change_lines(changes: Sequence[Change]) -> Iterable[str]:
    """Lines to copy: never wrapped."""
    for number, change in enumerate(changes):
        yield f"  {'open' if not number else 'or':<4}  {change.where:<{_WHERE}}  {change.line}"


def _conclusion(found: Examination) -> str:
    closed = [tier.title for tier in found.tiers if tier.mark == "closed" and tier.is_evidence]
    if closed:
        return f"closed, and costs evidence: {', '.join(closed)} (exit status 1)"
    parts = ["all that was tried is open"]
    if harmless := [tier.title for tier in found.tiers if tier.mark == "closed"]:
        parts = [f"closed, but costs no evidence: {', '.join(harmless)}"]
    if untried := [tier.title for tier in found.tiers if tier.mark == "not tried"]:
        parts.append(f"not tried: {', '.join(untried)}")
    return f"{'; '.join(parts)} (exit status 0)"


def wrapped(text: str, first: str, more: str) -> list[str]:
    """Lines of at most `WIDTH` columns; `first` precedes the first one, `more` the others."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=more, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
