"""Words for ops that differ between members of a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.cases.mismatch.checksums import ChecksumsDiffer
from frtop_tui.diagnosis.cases.mismatch.compare import Mismatch, Party
from frtop_tui.diagnosis.cases.mismatch.detect import OpsDiffer
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import kind_of
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.thresholds import MIN_PATIENCE_NS
from frtop_tui.diagnosis.words.phrases import (
    Tense,
    at_line,
    in_module,
    label_of,
    line_of_wait,
    signature_text,
    who,
)
from frtop_tui.job.model import BaseFrame, DivergenceHint
from frtop_tui.job.naming import folded

MOST_PAIRS: Final = 6
"""Pairs of splits that are listed as evidence."""


def ops_differ(finding: Finding, detail: OpsDiffer, frame: BaseFrame, tense: Tense) -> Sentences:
    """Which ranks called what, what the others called, and whether the job hangs."""
    found, waiting = detail.mismatch, _waiting(finding, detail, frame, tense)
    if found.unpaired:
        return _splits_differ(finding, detail, frame, waiting)
    main, other = found.parties[0], found.parties[1]
    number, at, on, upto = f"#{found.number} of {label_of(found.group)}", "as", "on", "up to"
    if not found.number:  # some members count from a later op
        number, at, on, upto = label_of(found.group), "in", "in", "in"
    place = number
    mine, theirs = call_text(other.op), call_text(main.op)
    if main.op.issuer == other.op.issuer:  # said once
        mine, theirs = _without_module(other.op), _without_module(main.op)
        place += in_module(main.op)
    named, rest = folded(other.ranks), folded(main.ranks)
    first, second = other.ranks[0], main.ranks[0]
    if finding.culprits:
        named = who(frame.ranks, other.ranks)
        head = f"{named} called {mine} {at} {place}, where {rest} called {theirs}"
        step = (
            f"compare the calls of rank {first} {upto} {number} with those of rank {second}: one"
            " too many, one too few, or a branch on the rank"
        )
    else:
        head = f"{named} and {rest} disagree {on} {place}: {mine} versus {theirs}"
        step = f"compare the calls of ranks {first} and {second} {upto} {number}"
    if _is_same_call(main.op, other.op):
        step = (
            f"see what sets the {found.field}{at_line(main.op)} on ranks {first} and {second},"
            " and whether either skipped a call before"
        )
    unaligned = (
        f"which op of the group {folded(detail.unaligned)} is at: its recorder was started"
        " after the group was created"
    )
    return Sentences(
        head,
        _why(_difference(found), detail),
        step,
        tuple(
            f"{folded(one.ranks)}: {call_text(one.op)}{_waits_at(one, finding, detail, frame)}"
            for one in found.parties[:6]
        ),
        (unaligned,) if detail.unaligned else (),
        waiting,
    )


def _waiting(finding: Finding, detail: OpsDiffer, frame: BaseFrame, tense: Tense) -> str:
    """`the job hangs: ranks 0-3 wait`; "" if the job goes on, or has ended.

    It hangs if all living ranks have waited for longer than any usual wait.
    """
    if not finding.nodes or detail.fatal or tense is Tense.PAST:
        return ""
    waits = [wait for node in finding.nodes for wait in node.waits]
    text = tense.waits(wait.rank for wait in waits)
    lasting = {wait.rank for wait in waits if wait.has_lasted(MIN_PATIENCE_NS, frame.now_ns)}
    living = {n for n, rank in frame.ranks.items() if rank.state not in ("dead", "done")}
    hangs = living <= lasting and not detail.from_dumps
    return f"the job hangs: {text}" if hangs else text


def _splits_differ(
    finding: Finding, detail: OpsDiffer, frame: BaseFrame, waiting: str
) -> Sentences:
    """Which pair in an all_to_all disagrees: each rank has its own splits."""
    found = detail.mismatch
    pair, more = found.unpaired[0], len(found.unpaired) - 1
    if pair.receiver in finding.culprits:
        one, other = pair.receiver, pair.sender
        does, where = f"expects {_rows(pair.expected)} of", f"sends {pair.sent:,}"
    else:
        one, other = pair.sender, pair.receiver
        does, where = f"sends {_rows(pair.sent)} to", f"expects {pair.expected:,}"
    named = who(frame.ranks, (one,)) if finding.culprits else folded((one,))
    place = f"#{found.number} of {label_of(found.group)}" if found.number else label_of(found.group)
    pairs = [
        f"{folded((one.sender,))} sends {_rows(one.sent)} to {folded((one.receiver,))}, which"
        f" expects {one.expected:,}"
        for one in found.unpaired[:MOST_PAIRS]
    ]
    # A party's op is that of its first rank.
    calls = [
        f"{folded(party.ranks[:1])}: {call_text(party.op)}"
        f"{_waits_at(party, finding, detail, frame)}"
        for party in found.parties
    ]
    also = f", and {more:,} more pair{'s' * (more > 1)} differ{'s' * (more == 1)}" if more else ""
    return Sentences(
        f"{named} {does} {folded((other,))}, which {where}, at {place}{also}",
        _why("the splits differ", detail),
        f"see what sets the splits{at_line(found.parties[1].op)} on ranks {one} and {other}, and"
        " whether either skipped a call before",
        (*pairs, *calls),
        waiting=waiting,
    )


def _waits_at(party: Party, finding: Finding, detail: OpsDiffer, frame: BaseFrame) -> str:
    """`; rank 2 waits at train.py:40 (validate)`: which line of the program led to the op."""
    number = detail.mismatch.number
    waiting = {
        wait.rank
        for node in finding.nodes
        for wait in node.waits
        if not (number and wait.op.number != number)
    }
    found = ((rank, line_of_wait(frame.ranks.get(rank), party.op)) for rank in party.ranks)
    lines = (f"; {folded((n,))} waits at {line}" for n, line in found if line and n in waiting)
    return next(lines, "")


def _rows(number: int) -> str:
    return f"{number:,} row{'s' * (number != 1)}"


def _difference(found: Mismatch) -> str:
    if found.field != "kind":
        return f"the {found.field} differs"
    kinds = dict.fromkeys(kind_of(party.op) for party in found.parties)
    return f"different collectives: {' and '.join(kinds)}"


def _why(differs: str, detail: OpsDiffer) -> Why:
    if detail.fatal:
        text = "the deaths follow from it"
    elif detail.blocking:
        text = "they wait for each other"
    else:
        text = "data may be wrong without any error"
    over = "; the job has ended" if detail.over else ""
    return Why.of("mismatch", f"collective mismatch (desync): {differs}; {text}{over}")


def checksums_differ(
    finding: Finding, detail: ChecksumsDiffer, frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Which ranks differ from which, and between which ops."""
    hint = detail.hint
    between = _between(hint)
    main, *others = hint.sides
    if hint.pairs:
        head = f"splits of all_to_all {between} do not pair: ranks send what others do not expect"
        step = f"compare the splits of {folded(main)} {between}"
    else:
        odd = others[0]
        step = f"compare the calls of ranks {odd[0]} and {main[0]} {between}"
        head = f"{folded(odd)} and {folded(main)} issued different ops {between}"
        if finding.culprits:
            named = who(frame.ranks, finding.culprits)
            head = f"{named} issued other ops {between} than {folded(main)}"
    text = "checksums of their ops differ; data may be wrong without any error"
    return Sentences(
        head,
        Why.of("mismatch", f"{text}; the job has ended" if detail.over else text),
        f"{step}; if it happens again while frtop watches, the op will be named",
        missing=("which op it was: it could not be read, or had been overwritten",),
    )


def unanswered_notes(hints: Iterable[DivergenceHint]) -> tuple[str, ...]:
    """One line for each difference of checksums whose ops were not sent."""
    return tuple(
        f"{_sums(hint)} {_between(hint)}, but these ops did not arrive in time: whether they may"
        " differ is not known"
        for hint in hints
    )


def _sums(hint: DivergenceHint) -> str:
    if hint.pairs:
        return "checksums of all_to_all's splits do not pair"
    main, odd, *_ = hint.sides
    return f"checksums of ops of {folded(odd)} and {folded(main)} differ"


def _between(hint: DivergenceHint) -> str:
    group = label_of(hint.group)
    if hint.first == hint.last:
        return f"at #{hint.first} of {group}"
    return f"between #{hint.first} and #{hint.last} of {group}"


def call_text(op: wire.Op) -> str:
    return f"{signature_text(op.signature)}{in_module(op)}{at_line(op)}"


def _without_module(op: wire.Op) -> str:
    return f"{signature_text(op.signature)}{at_line(op)}"


def _is_same_call(one: wire.Op, other: wire.Op) -> bool:
    """Whether one line called the same op with other arguments."""
    known = one.site is not None and bool(one.site.line)
    return known and one.site == other.site and kind_of(one) == kind_of(other)
