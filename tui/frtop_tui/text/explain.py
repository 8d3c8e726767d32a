"""The stages of a judgement as lines of text: `frtop diagnose --explain`."""

from __future__ import annotations

from frtop_tui.diagnosis.model import BlockedRanks, FindingTrace, NodeTrace, Trace
from frtop_tui.job.naming import rank_words
from frtop_tui.job.unprepared import age_words
from frtop_tui.text.wait_boxes import WORDS, differs_words

_FREE_BY_ELIMINATION = "the only rank in no op; nothing shows which rank the others wait for"


def explain_lines(trace: Trace) -> list[str]:
    """What each stage of the diagnosis found; not yet safe for a terminal."""
    graph = [line for node in trace.graph for line in _node_lines(node)]
    findings = [line for finding in trace.findings for line in _finding_lines(finding)]
    return [
        "how this was found",
        "  1. who is blocked, in what, and by which sign",
        *(map(_blocked_line, trace.blocked) if trace.blocked else ["     nobody"]),
        *_more(trace.more_blocked),
        "  2. who waits for whom",
        *(graph or ["     nobody waits for anybody"]),
        *_more(trace.more_nodes),
        "  3. findings, which ranks they leave out, and why they are confirmed or not",
        *(findings or ["     none"]),
    ]


def _blocked_line(one: BlockedRanks) -> str:
    age = f" for {age_words(one.seconds, least=not one.dated)}" if one.seconds is not None else ""
    return f"     {_ranks(one.ranks)} in {one.op}{age}: {one.sign}"


def _node_lines(node: NodeTrace) -> list[str]:
    age = "overdue" if node.overdue else "not overdue"
    lines = [f"     {node.op}: {_ranks(node.waiting)} in it ({age})"]
    for ranks, text in (
        (node.free, _FREE_BY_ELIMINATION if node.by_elimination else WORDS["free"]),
        (node.ended, WORDS["ended"]),
        (node.unobserved, WORDS["unobserved"]),
    ):
        if ranks:
            lines.append(f"       {_ranks(ranks)}: {text}")
    lines += [f"       {_ranks(e.ranks)}: not entered, blocked in {e.op}" for e in node.edges]
    lines += [f"       {_ranks(e.ranks)}: {differs_words(e)}" for e in node.differ]
    if len(lines) == 1:
        lines.append(f"       {node.open or 'all members have entered it'}")
    return lines


def _finding_lines(finding: FindingTrace) -> list[str]:
    named = f" {_ranks(finding.culprits)}" if finding.culprits else ""
    facts = f"{finding.kind}{named} (cause {finding.cause}, progress {finding.progress})"
    lines = [f"     {facts}: {finding.confirmation}"]
    if finding.explains:
        lines.append(f"       explains the waits in {', '.join(finding.explains[:4])}")
    lines += [f"       left out {_ranks(one.ranks)}: {one.rule}" for one in finding.left_out]
    return lines


def _ranks(ranks: str) -> str:
    return rank_words(ranks, 60)


def _more(count: int) -> list[str]:
    return [f"     and {count:,} more"] if count else []
