"""A report as Markdown, to be pasted into an incident's page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from frtop_tui.job.naming import rank_words
from frtop_tui.job.units import counted
from frtop_tui.text.document import Block, Document, Items, Ranks, StackBranches, Table, Waits
from frtop_tui.text.rank_states import LETTERS
from frtop_tui.text.verdict import VerdictText

MOST_ROWS: Final = 64
"""Ranks listed one by one: nobody pastes a longer table. The states list all ranks."""
_SPECIAL: Final = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_+|_+(?![^\W_])|(?<=:)//|(?<=www)\.")
"""Characters of markup, and of bare addresses, which some readers turn into links.

An underscore between two letters is none: chats would show the backslash in `all_reduce`.
"""
_FIRST: Final = re.compile(r"^(\d+(?=[.)]\s)|(?=[-+=#>]))")
"""What starts a list or a heading at the start of a line."""
_TAGS: Final = {"&": "&amp;", "<": "&lt;"}


def markdown(document: Document) -> str:
    """The whole text."""
    lines = [f"# {_text(document.summary)}", "", *_list(document.origin), ""]
    lines += [line for one in document.verdicts for line in _verdict(one)]
    if not document.verdicts:
        lines.append(f"**{_text(document.no_verdict)}**")
    for title, blocks in document.sections:
        lines += ["", f"## {title}"] if blocks else []
        lines += [line for block in blocks for line in ("", *_block(block))]
    return "\n".join([*lines, ""])


def _block(block: Block) -> Sequence[str]:
    match block:
        case Items(lines):
            return _list(lines)
        case Table(columns, rows):
            return _table(columns, rows)
        case Waits():
            return _fenced(block.lines)
        case Ranks():
            return _ranks(block)
        case StackBranches():
            return _stacks(block)


def _text(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no link, no mention, no HTML."""
    plain = _SPECIAL.sub(lambda found: "".join(f"\\{one}" for one in found[0]), text.strip())
    plain = _FIRST.sub(r"\1\\", plain)
    return "".join(_TAGS.get(letter, letter) for letter in plain)


def _list(lines: Iterable[str]) -> list[str]:
    return [f"- {_text(line)}" for line in lines]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = (f"| {' | '.join(map(_text, row))} |" for row in rows)
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *body]


def _fenced(lines: Sequence[str]) -> list[str]:
    """Lines in a fence that is longer than any run of backticks in them."""
    runs = (len(run) for line in lines for run in re.findall(r"`+", line))
    fence = "`" * max(3, max(runs, default=0) + 1)
    return [f"{fence}text", *lines, fence]


def _verdict(one: VerdictText) -> Iterable[str]:
    yield f"**{_text(one.kind)}: {_text(one.headline)}**"
    yield ""
    yield f"- **next**: {_text(one.next)}"
    for label, said in one.facts:
        yield f"- {label}: {_text(said)}"
    for line in one.evidence:
        yield f"  - {_text(line)}"
    for line in one.missing:
        yield f"  - not seen: {_text(line)}"
    yield ""


def _ranks(ranks: Ranks) -> list[str]:
    states = [(f"{LETTERS[state]} {state}", those) for state, those in ranks.by_state]
    shown = sorted(ranks.rows, key=lambda row: not row.blamed)[:MOST_ROWS]
    rows = [
        (
            f"{row.rank}{' (blamed)' if row.blamed else ''}",
            *(row.state, row.since, row.host, row.pid, row.doing),
        )
        for row in shown
    ]
    left = len(ranks.rows) - len(rows)
    return [
        *_table(("state", "ranks"), states),
        "",
        *_table(("rank", "state", "for", "host", "pid", "doing"), rows),
        *(["", f"{counted(left, 'more rank')} not listed"] if left else []),
    ]


def _stacks(stacks: StackBranches) -> list[str]:
    lines: list[str] = []
    for one in stacks.branches:
        indent = "  " * one.depth
        lines.append(f"{indent}{rank_words(one.ranks)}")
        lines += [f"{indent}{'> ' if mine else '  '}{text}" for text, mine in one.frames]
    age = f"Main threads, outermost frame first, at most {stacks.age} old;"
    return [f"{age} `>` marks your own code.", "", *_fenced(lines)]
