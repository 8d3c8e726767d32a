"""Words for ops that differ between members of a group."""

from __future__ import annotations

from frtop_probe import wire
from frtop_tui.diagnosis.detectors.mismatch.checksums import ChecksumsDiffer
from frtop_tui.diagnosis.detectors.mismatch.live_mismatch import OpsDiffer
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import kind_of
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.wording.phrases import at_line, signature_text, who
from frtop_tui.diagnosis.wording.tense import Tense
from frtop_tui.job.model import BaseFrame
from frtop_tui.job.naming import folded, group_label


def ops_differ(finding: Finding, detail: OpsDiffer, frame: BaseFrame, _tense: Tense) -> Sentences:
    """Who called what, where the others called something else."""
    found = detail.mismatch
    main, other = found.parties[0], found.parties[1]
    label = group_label(found.group.name, found.group.description)
    # No number: some of them count from another op on.
    place = f"#{found.number} of {label}" if found.number else label
    upto = "up to" if found.number else "in"
    mine = f"{signature_text(other.op.signature)}{at_line(other.op)}"
    theirs = f"{signature_text(main.op.signature)}{at_line(main.op)}"
    if finding.culprits:
        head = (
            f"{who(frame.ranks, other.ranks)} called {mine} {'as' if found.number else 'in'}"
            f" {place}, where {folded(main.ranks)} called {theirs}"
        )
        step = (
            f"compare the calls of rank {other.ranks[0]} {upto} {place} with those of rank"
            f" {main.ranks[0]}: one too many, one too few, or a branch on the rank"
        )
    else:
        head = (
            f"{folded(other.ranks)} and {folded(main.ranks)} disagree"
            f" {'on' if found.number else 'in'} {place}: {mine} against {theirs}"
        )
        step = f"compare the calls of ranks {other.ranks[0]} and {main.ranks[0]} {upto} {place}"
    if _is_same_call(main.op, other.op):
        step = (
            f"see what sets the {found.field}{at_line(main.op)} on ranks {other.ranks[0]} and"
            f" {main.ranks[0]}, and whether either skipped a call before"
        )
    outcome = "data may be wrong without any error"
    if detail.blocking:
        outcome = "they wait for each other"
    if detail.fatal:
        outcome = "the deaths follow from it"
    differs = "differ" if found.field == "splits" else "differs"
    if detail.over:
        outcome += "; the job has ended"
    missing = tuple[str, ...]()
    if detail.unaligned:
        text = f"which op of the group {folded(detail.unaligned)} is at"
        missing = (f"{text}: the recorder there was started after the group was made",)
    return Sentences(
        head,
        Why("mismatch", "software", f"the {found.field} {differs}; {outcome}"),
        step,
        tuple(
            f"{folded(party.ranks)}: {signature_text(party.op.signature)}{at_line(party.op)}"
            for party in found.parties[:6]
        ),
        missing,
    )


def checksums_differ(
    finding: Finding, detail: ChecksumsDiffer, frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Who differs from whom, and between which ops."""
    hint = detail.hint
    label = group_label(hint.group.name, hint.group.description)
    between = f"between #{hint.first} and #{hint.last} of {label}"
    if hint.first == hint.last:
        between = f"at #{hint.first} of {label}"
    main, *others = hint.sides
    if hint.pairs:
        head = f"what ranks sent and received in all_to_all {between} does not pair"
        step = f"compare the splits of {folded(main)} {between}"
    else:
        odd = others[0]
        step = f"compare the calls of ranks {odd[0]} and {main[0]} {between}"
        head = f"{folded(odd)} and {folded(main)} issued different ops {between}"
        if finding.culprits:
            named = who(frame.ranks, finding.culprits)
            head = f"{named} issued something else {between} than {folded(main)}"
    text = "sums over their ops differ; data may be wrong without any error"
    return Sentences(
        head,
        Why("mismatch", "software", f"{text}; the job has ended" if detail.over else text),
        f"{step}; if it comes again while frtop watches, the op will be named",
        missing=("which op it was: it could not be read, or was overwritten by then",),
    )


def _is_same_call(one: wire.Op, other: wire.Op) -> bool:
    """Whether one line of one program called the same op with other arguments."""
    known = one.site is not None and bool(one.site.line)
    return known and one.site == other.site and kind_of(one) == kind_of(other)
