"""An incident as Markdown, as it is pasted into an incident's page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from frtop_tui.job.units import counted
from frtop_tui.text.incident import (
    CLOCK_COLUMNS,
    GROUP_COLUMNS,
    Incident,
    StackBranch,
    TimeSection,
)
from frtop_tui.text.rank_states import LETTERS
from frtop_tui.text.statistics_table import HEAD, STEP_HEAD
from frtop_tui.text.verdict import VerdictText

MOST_ROWS: Final = 64
"""Ranks that are listed one by one: a longer table is not pasted. The states list all ranks."""
_SPECIAL: Final = re.compile(r"([\\`*_\[\]|~$]|(?<=:)//|(?<=www)\.)")
"""Marks of markup and of links, which some readers make of a bare address."""
_FIRST: Final = re.compile(r"^(\d+(?=[.)]\s)|(?=[-+=#]))")
"""What begins a list or a heading at the start of a line."""
_TAGS: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def markdown(incident: Incident) -> str:
    """The whole text."""
    lines = [
        f"# {_text(incident.summary)}",
        "",
        *_list(incident.origin),
        "",
        *(line for one in incident.verdicts for line in _verdict(one)),
        *([] if incident.verdicts else [f"**{_text(incident.no_verdict or 'no verdict yet')}**"]),
        *_section("Notes", _list(incident.notes)),
        *_section("Who waits for whom", _block(incident.explanation)),
        *_section("Ranks", _ranks(incident)),
        *_section("Stacks", _stacks(incident)),
        *_section("Groups", _table(GROUP_COLUMNS, incident.groups)),
        *_section("Where the time goes", _time(incident.time)),
        *_section("What was not seen", _list(incident.coverage)),
        *_section("Settings that differ", _table(("name", "values"), incident.different)),
        *_section("Settings", _table(("name", "value"), incident.settings)),
        *_section("Clocks of hosts", _table(CLOCK_COLUMNS, incident.clocks)),
        *_section("Versions", _table(("of", "is"), incident.versions)),
        "",
    ]
    return "\n".join(lines)


def _text(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no link, no mention, no HTML."""
    plain = _SPECIAL.sub(lambda found: "".join(f"\\{one}" for one in found[0]), text.strip())
    plain = _FIRST.sub(r"\1\\", plain)
    return "".join(_TAGS.get(letter, letter) for letter in plain)


def _section(title: str, content: Sequence[str]) -> Iterable[str]:
    return ["", f"## {title}", "", *content] if content else []


def _list(lines: Iterable[str]) -> list[str]:
    return [f"- {_text(line)}" for line in lines]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [f"| {' | '.join(map(_text, row))} |" for row in rows]
    if not body:
        return []
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *body]


def _block(lines: Sequence[str]) -> list[str]:
    """Lines in a fence that is longer than any run of backticks in them."""
    if not lines:
        return []
    runs = (len(run) for line in lines for run in re.findall(r"`+", line))
    fence = "`" * max(3, max(runs, default=0) + 1)
    return [f"{fence}text", *lines, fence]


def _time(one: TimeSection) -> list[str]:
    tables = (*_table(HEAD, one.calls), *_table(STEP_HEAD, one.steps))
    return [*_list(one.facts), *tables] if tables else []


def _verdict(one: VerdictText) -> Iterable[str]:
    yield f"**{_text(one.kind)}: {_text(one.headline)}**"
    yield ""
    yield f"- **next**: {_text(one.fact('next'))}"
    for label, said in one.facts:
        yield f"- {label}: {_text(said)}"
    for line in one.evidence:
        yield f"  - {_text(line)}"
    for line in one.missing:
        yield f"  - not seen: {_text(line)}"
    yield ""


def _ranks(incident: Incident) -> list[str]:
    states = [(f"{LETTERS[state]} {state}", ranks) for state, ranks in incident.by_state]
    if not incident.ranks:
        return []
    rows = [
        (
            f"{row.rank}{' (blamed)' if row.blamed else ''}",
            row.state,
            row.since,
            row.host,
            str(row.pid or ""),
            row.doing,
        )
        for row in sorted(incident.ranks, key=lambda row: not row.blamed)[:MOST_ROWS]
    ]
    left = len(incident.ranks) - len(rows)
    return [
        *_table(("state", "ranks"), states),
        "",
        *_table(("rank", "state", "for", "host", "pid", "doing"), rows),
        *(["", f"{counted(left, 'more rank')} not listed"] if left else []),
    ]


def _stacks(incident: Incident) -> list[str]:
    lines: list[str] = []
    waiting: list[tuple[StackBranch, str]] = [(one, "") for one in reversed(incident.stacks)]
    while waiting:
        one, indent = waiting.pop()
        plural = "s" if "-" in one.ranks or "," in one.ranks else ""
        lines.append(f"{indent}rank{plural} {one.ranks}")
        lines += [f"{indent}{'> ' if mine else '  '}{text}" for text, mine in one.frames]
        waiting += [(child, f"{indent}  ") for child in reversed(one.children)]
    missing = _list(f"no stack of ranks {ranks}: {why}" for why, ranks in incident.no_stacks)
    if not lines:
        return missing
    age = f"Main threads, outermost frame first, at most {incident.stacks_age} old;"
    return [f"{age} `>` marks your own code.", "", *_block(lines), "", *missing]
