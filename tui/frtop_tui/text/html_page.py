"""A report as one HTML file: nothing is loaded, nothing runs, every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from frtop_tui.job.naming import rank_words
from frtop_tui.job.units import counted
from frtop_tui.text.document import (
    Block,
    Document,
    Items,
    RankRow,
    Ranks,
    StackBranches,
    Table,
    Waits,
)
from frtop_tui.text.rank_states import LETTERS, MEANINGS
from frtop_tui.text.verdict import VerdictText
from frtop_tui.text.wait_drawing import drawing_svg, place_waits

STYLE: Final = """
:root { color-scheme: light dark;
  --back: #ffffff; --text: #1d2430; --dim: #5d6878; --line: #d5dbe3; --soft: #f3f5f8;
  --alarm: #b3261e; --alarm-soft: #fdecea; --warn: #8a5a00; --warn-soft: #fff4dc;
  --good: #1e6b3a; --wait: #2b5da8; --wait-soft: #e8f0fc; }
@media (prefers-color-scheme: dark) { :root {
  --back: #14181f; --text: #e4e8ee; --dim: #9aa5b4; --line: #333c49; --soft: #1d232c;
  --alarm: #ff8a80; --alarm-soft: #3b1d1c; --warn: #f0c063; --warn-soft: #362b14;
  --good: #7fd69b; --wait: #8ab4f8; --wait-soft: #1b2a42; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 1060px; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 22px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 30px 0 10px; border-bottom: 1px solid var(--line);
  padding-bottom: 4px; }
code, pre, .mono, .grid, svg text { font-family: ui-monospace, Menlo, Consolas, monospace; }
pre, .mono { font-size: 13px; white-space: pre-wrap; overflow-wrap: anywhere; }
p, ul { margin: 6px 0; } ul { padding-left: 20px; } li { overflow-wrap: anywhere; }
.dim { color: var(--dim); }
.verdict { border-left: 5px solid var(--alarm); background: var(--alarm-soft);
  padding: 12px 16px; margin: 14px 0; border-radius: 0 6px 6px 0; overflow-wrap: anywhere; }
.verdict.suspect { border-color: var(--warn); background: var(--warn-soft); }
.verdict.none { border-color: var(--line); background: var(--soft); }
.verdict h3 { margin: 0 0 6px; font-size: 17px; }
.verdict .kind { color: var(--alarm); font-weight: 700; }
.verdict.suspect .kind { color: var(--warn); }
.verdict .next { font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; margin: 6px 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: 13px; margin: 6px 0; width: 100%; }
th, td { text-align: left; padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--dim); font-weight: 600; }
.scroll { overflow-x: auto; }
.grid { display: grid; grid-template-columns: max-content 1fr; gap: 4px 12px; font-size: 12px; }
.cells { display: flex; flex-wrap: wrap; gap: 3px; }
.cell { min-width: 46px; padding: 1px 5px; border: 1px solid var(--line); border-radius: 4px;
  display: flex; justify-content: space-between; gap: 6px; }
.cell b { font-weight: 700; }
.blocked { background: var(--wait-soft); } .blocked b { color: var(--wait); }
.late, .silent, .stopped { background: var(--warn-soft); }
.late b, .silent b, .stopped b { color: var(--warn); }
.dead { background: var(--alarm-soft); } .dead b { color: var(--alarm); }
.moving b, .done b { color: var(--good); }
.blamed { outline: 2px solid var(--alarm); }
.graph { display: block; }
.graph rect { fill: var(--soft); stroke: var(--line); stroke-width: 1.5; }
.graph .waits rect { fill: var(--wait-soft); stroke: var(--wait); }
.graph .young rect { stroke-dasharray: 5 4; }
.graph .free rect, .graph .ended rect, .graph .differs rect { fill: var(--alarm-soft);
  stroke: var(--alarm); stroke-width: 2; }
.graph .unobserved rect { fill: var(--warn-soft); stroke: var(--warn); stroke-dasharray: 5 4; }
.graph text { fill: var(--text); font-size: 11px; }
.graph .name { font-weight: 700; } .graph .label, .graph .more { fill: var(--dim); }
.graph .label { paint-order: stroke; stroke: var(--back); stroke-width: 4px; }
.graph .arrow { fill: none; stroke: var(--dim); stroke-width: 1.5; }
.graph .closing { stroke: var(--alarm); stroke-width: 2.5; }
.graph .tip { fill: var(--dim); } .graph marker { overflow: visible; }
details { margin: 3px 0; } summary { cursor: pointer; }
details.branch { margin-left: 14px; border-left: 2px solid var(--line); padding-left: 10px; }
.branch ol { margin: 2px 0; padding-left: 4px; list-style: none; font-size: 12.5px;
  white-space: normal; }
.branch li { white-space: pre-wrap; }
.branch .mine { font-weight: 700; color: var(--alarm); }
footer { margin-top: 30px; font-size: 12px; color: var(--dim); }
@media print { .graph { max-width: 100%; height: auto; }
  body { padding: 0; max-width: none; font-size: 11px; }
  details::details-content { content-visibility: visible; display: block; }
  .verdict, .cell, tr, svg { break-inside: avoid; } h2 { break-after: avoid; } }
"""


_RANKS_OPEN: Final = 16
"""Lists up to this many ranks without unfolding."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""Browsers may load and run nothing for this page, and use its own style."""


def html_page(document: Document) -> str:
    """The whole file."""
    none = f'<div class="verdict none"><h3>{escape(document.no_verdict)}</h3></div>'
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(document.title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(document.summary)}</h1>",
        *(f'<p class="dim">{escape(line)}</p>' for line in document.origin),
        *(map(_verdict, document.verdicts) if document.verdicts else [none]),
    ]
    for title, blocks in document.sections:
        lines += [f"<h2>{title}</h2>"] if blocks else []
        lines += [line for block in blocks for line in _block(block)]
    end = "Written by frtop. This file is complete: it loads and runs nothing."
    return "\n".join([*lines, f"<footer>{end}</footer>", "</body></html>", ""])


def _block(block: Block) -> Iterable[str]:
    match block:
        case Items(lines):
            return _list(lines)
        case Table(columns, rows):
            return _table(columns, rows)
        case Waits():
            return _waits(block)
        case Ranks():
            return _ranks(block)
        case StackBranches():
            return _stacks(block)


def _list(lines: Iterable[str]) -> list[str]:
    items = [f"<li>{escape(line)}</li>" for line in lines]
    return ["<ul>", *items, "</ul>"] if items else []


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    return ['<div class="scroll"><table>', f"<tr>{head}</tr>", *body, "</table></div>"]


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


def _waits(waits: Waits) -> list[str]:
    graph = place_waits(waits.trace)
    drawn = drawing_svg(graph)
    left_out = counted(graph.left_out, "more op")
    more = [f'<p class="dim">{left_out} not drawn</p>'] * bool(graph.left_out)
    text = "\n".join(map(escape, waits.lines))
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


def _ranks(ranks: Ranks) -> list[str]:
    by_host: dict[str, list[RankRow]] = {}
    for row in ranks.rows:
        by_host.setdefault(row.host or "host not known", []).append(row)
    legend = ", ".join(
        f"<b>{LETTERS[state]}</b> {state} {escape(those)}" for state, those in ranks.by_state
    )
    cells = [
        f'<span>{escape(host)}</span><span class="cells">{"".join(map(_cell, rows))}</span>'
        for host, rows in by_host.items()
    ]
    columns = ("rank", "state", "for", "host", "pid", "step", "doing")
    rows = [
        (str(row.rank), row.state, row.since, row.host, row.pid, row.step, row.doing)
        for row in ranks.rows
    ]
    opened = " open" if len(rows) <= _RANKS_OPEN else ""
    meanings = "; ".join(f"{state}: {MEANINGS[state]}" for state, _ in ranks.by_state)
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


def _stacks(stacks: StackBranches) -> Iterable[str]:
    yield (
        f'<p class="dim">Main threads, outermost frame first, at most {stacks.age} old.'
        " Bold: your own code.</p>"
    )
    opened = 0
    for one in stacks.branches:
        yield from ["</details>"] * (opened - one.depth)
        opened = one.depth + 1
        yield f'<details class="branch" open><summary>{escape(rank_words(one.ranks))}</summary>'
        yield '<ol class="mono">'
        for text, mine in one.frames:
            marked = ' class="mine"' if mine else ""
            yield f"<li{marked}>{escape(text)}</li>"
        yield "</ol>"
    yield from ["</details>"] * opened
