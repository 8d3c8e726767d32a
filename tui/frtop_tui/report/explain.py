"""The stages of a judgement as lines of text: `frtop diagnose --explain`."""

from __future__ import annotations

from frtop_tui.diagnosis.trace import FindingTrace, NodeTrace, Trace
from frtop_tui.job.naming import duration, printable, shortened


def explain_lines(trace: Trace) -> list[str]:
    """What each stage found, in the order of the stages."""
    lines = ["how this was found", "  1. who is blocked, in what, and by which sign"]
    for one in trace.blocked:
        age = f" for {duration(one.seconds)}" if one.seconds is not None else ""
        lines.append(f"     {_ranks(one.ranks)} in {one.op}{age}: {one.sign}")
    if not trace.blocked:
        lines.append("     nobody")
    lines += _more(trace.more_blocked)
    lines.append("  2. who waits for whom")
    for node in trace.graph:
        lines += _node_lines(node)
    if not trace.graph:
        lines.append("     nobody waits for anybody")
    lines += _more(trace.more_nodes)
    lines.append("  3. findings, whom they leave out, and why they are confirmed or not")
    for finding in trace.findings:
        lines += _finding_lines(finding)
    if not trace.findings:
        lines.append("     none")
    return [printable(line) for line in lines]


def _node_lines(node: NodeTrace) -> list[str]:
    age = "overdue" if node.overdue else "not overdue"
    lines = [f"     {node.op}: {_ranks(node.waiting)} in it ({age})"]
    for ranks, text in (
        (node.free, "not entered, and not blocked: the blame ends here"),
        (node.ended, "not entered, and ended"),
        (node.unobserved, "not observed: may or may not have entered"),
    ):
        if ranks:
            lines.append(f"       {_ranks(ranks)}: {text}")
    lines += [f"       {_ranks(e.ranks)}: not entered, blocked in {e.op}" for e in node.edges]
    if len(lines) == 1:
        lines.append("       all members have entered it")
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
    plural = "-" in ranks or "," in ranks
    return f"rank{'s' if plural else ''} {shortened(ranks)}"


def _more(count: int) -> list[str]:
    return [f"     and {count:,} more"] if count else []
