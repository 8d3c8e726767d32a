"""An incident as one HTML file: nothing is loaded, nothing runs, every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from frtop_tui.job.units import counted
from frtop_tui.text.incident import (
    CLOCK_COLUMNS,
    GROUP_COLUMNS,
    Incident,
    RankRow,
    StackBranch,
    TimeSection,
)
from frtop_tui.text.page_style import STYLE
from frtop_tui.text.rank_states import LETTERS, MEANINGS
from frtop_tui.text.statistics_table import HEAD, STEP_HEAD
from frtop_tui.text.verdict import VerdictText
from frtop_tui.text.wait_drawing import place_waits
from frtop_tui.text.wait_drawing_svg import drawing_svg

_RANKS_OPEN: Final = 16
"""As many ranks are listed without being unfolded."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""What browsers may load for this page, and run in it: nothing but its style."""


def html_page(incident: Incident) -> str:
    """The whole file."""
    title = escape(f"{incident.title}: {incident.health}")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{title}</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(incident.summary)}</h1>",
            *(f'<p class="dim">{escape(line)}</p>' for line in incident.origin),
            *map(_verdict, incident.verdicts),
            *_quiet(incident),
            *_section("Notes", _list(incident.notes)),
            *_section("Who waits for whom", _waits(incident)),
            *_section("Ranks", _ranks(incident)),
            *_section("Stacks", _stacks(incident)),
            *_section("Groups", _table(GROUP_COLUMNS, incident.groups)),
            *_section("Where the time goes", _time(incident.time)),
            *_section("What was not seen", _list(incident.coverage)),
            *_section("Settings that differ", _table(("name", "values"), incident.different)),
            *_section("Settings", _table(("name", "value"), incident.settings)),
            *_section("Clocks of hosts", _table(CLOCK_COLUMNS, incident.clocks)),
            *_section("Versions", _table(("of", "is"), incident.versions)),
            "<footer>Written by frtop. This file is complete: it loads and runs nothing.</footer>",
            "</body></html>",
            "",
        ]
    )


def _section(title: str, content: Sequence[str]) -> Iterable[str]:
    return [f"<h2>{title}</h2>", *content] if content else []


def _list(lines: Iterable[str]) -> list[str]:
    items = [f"<li>{escape(line)}</li>" for line in lines]
    return ["<ul>", *items, "</ul>"] if items else []


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    if not body:
        return []
    return ['<div class="scroll"><table>', f"<tr>{head}</tr>", *body, "</table></div>"]


def _time(one: TimeSection) -> list[str]:
    tables = (*_table(HEAD, one.calls), *_table(STEP_HEAD, one.steps))
    return [*_list(one.facts), *tables] if tables else []


def _verdict(one: VerdictText) -> str:
    suspect = " suspect" if one.kind.endswith("(suspect)") else ""
    facts = "".join(f"<dt>{escape(label)}</dt><dd>{escape(said)}</dd>" for label, said in one.facts)
    evidence = [*one.evidence, *(f"not seen: {line}" for line in one.missing)]
    return "\n".join(
        [
            f'<div class="verdict{suspect}">',
            f'<h3><span class="kind">{escape(one.kind)}</span> {escape(one.headline)}</h3>',
            f'<p class="next">Next: {escape(one.next)}</p>',
            f"<dl>{facts}</dl>",
            *(["<details open><summary>Evidence</summary>"] if evidence else []),
            *_list(evidence),
            *(["</details>"] if evidence else []),
            "</div>",
        ]
    )


def _quiet(incident: Incident) -> Iterable[str]:
    if incident.verdicts:
        return []
    said = incident.no_verdict or "no verdict yet"
    return [f'<div class="verdict none"><h3>{escape(said)}</h3></div>']


def _waits(incident: Incident) -> list[str]:
    if incident.trace is None or not incident.explanation:
        return []
    graph = place_waits(incident.trace)
    drawn = drawing_svg(graph)
    left_out = counted(graph.left_out, "more op")
    more = [f'<p class="dim">{left_out} not drawn</p>'] * bool(graph.left_out)
    text = "\n".join(map(escape, incident.explanation))
    return [
        *(
            [f'<div class="scroll">{drawn}</div>']
            if drawn
            else ["<p>Nobody waits for anybody.</p>"]
        ),
        *more,
        "<details><summary>How this was found</summary>",
        f"<pre>{text}</pre></details>",
    ]


def _ranks(incident: Incident) -> list[str]:
    if not incident.ranks:
        return []
    by_host: dict[str, list[RankRow]] = {}
    for row in incident.ranks:
        by_host.setdefault(row.host or "host not known", []).append(row)
    legend = ", ".join(
        f"<b>{LETTERS[state]}</b> {state} {escape(ranks)}" for state, ranks in incident.by_state
    )
    cells = [
        f'<span>{escape(host)}</span><span class="cells">{"".join(map(_cell, rows))}</span>'
        for host, rows in by_host.items()
    ]
    rows = [
        (
            str(row.rank),
            row.state,
            row.since,
            row.host,
            str(row.pid or ""),
            str(row.step or ""),
            row.doing,
        )
        for row in incident.ranks
    ]
    columns = ("rank", "state", "for", "host", "pid", "step", "doing")
    opened = " open" if len(rows) <= _RANKS_OPEN else ""
    meanings = "; ".join(f"{state}: {MEANINGS[state]}" for state, _ in incident.by_state)
    return [
        f'<p class="mono">{legend}</p>',
        '<div class="grid">',
        *cells,
        "</div>",
        f'<p class="dim">{escape(meanings)}. Framed: blamed.</p>',
        f"<details{opened}><summary>One by one</summary>",
        *_table(columns, rows),
        "</details>",
    ]


def _cell(row: RankRow) -> str:
    said = escape(f"rank {row.rank}: {row.state} {row.since} {row.doing}".strip())
    blamed = " blamed" if row.blamed else ""
    return (
        f'<span class="cell {row.state}{blamed}" title="{said}">'
        f"<span>{row.rank}</span><b>{LETTERS[row.state]}</b></span>"
    )


def _stacks(incident: Incident) -> list[str]:
    lines: list[str] = []
    if incident.stacks_age:
        lines.append(
            f'<p class="dim">Main threads, outermost frame first, at most {incident.stacks_age}'
            " old. Bold: your own code.</p>"
        )
    for root in incident.stacks:
        lines += _branch(root)
    lines += _list(f"no stack of ranks {ranks}: {why}" for why, ranks in incident.no_stacks)
    return lines


def _branch(root: StackBranch) -> Iterable[str]:
    """The lines of one tree; a stack may be deeper than Python may recurse."""
    waiting: list[StackBranch | None] = [root]
    while waiting:
        one = waiting.pop()
        if one is None:
            yield "</details>"
            continue
        plural = "s" if "-" in one.ranks or "," in one.ranks else ""
        yield f'<details class="branch" open><summary>rank{plural} {escape(one.ranks)}</summary>'
        yield '<ol class="mono">'
        for text, mine in one.frames:
            marked = ' class="mine"' if mine else ""
            yield f"<li{marked}>{escape(text)}</li>"
        yield "</ol>"
        waiting.append(None)
        waiting += reversed(one.children)
