"""The style sheet of the HTML report: light and dark, and readable when printed."""

from __future__ import annotations

from typing import Final

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
.graph .free rect, .graph .ended rect { fill: var(--alarm-soft); stroke: var(--alarm);
  stroke-width: 2; }
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
