"""An answer of NCCL's RAS as lines of text: the same on the command line and on the screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import counted, folded, listed, printable
from frtop_tui.ras.launches import counts_by_kind, moved, status_words
from frtop_tui.ras.membership import Membership, memberships

NOT_COVERED: Final = (
    "counts are ops launched on the host: whether any is complete is not known",
    "sends, receives (so all_to_all, gather, scatter) and replays of CUDA graphs are not counted",
    "it is no evidence of frtop's verdict",
)
MAX_COMMUNICATORS: Final = 64
"""That are shown; `--json` has all."""
MAX_FEWER: Final = 16
MAX_PROBLEM_LINES: Final = 40


def answer_lines(
    frame: BaseFrame,
    rank: Rank,
    response: wire.RasResponse,
    earlier: wire.RasResponse | None = None,
) -> list[str]:
    """The answer that `rank` was asked for; with `earlier`, what has not moved since then."""
    report = response.report
    if report is None:
        text, _, step = response.help.partition("; ")
        asked = "asked, and no answer" if response.asked else "not asked"
        lines = [f"RAS {asked}: {text or response.error}"]
        return list(map(printable, [*lines, *([f"  next  {step}"] if step else [])]))
    took = f", collected in {report.collection_s:.2f} s" if report.collection_s is not None else ""
    asked = f"asked at rank {rank.rank} ({response.address})"
    version = report.nccl_version or "of an unknown version"
    late = f", {report.timeouts} of its own requests timed out" if report.timeouts else ""
    lines = [f"RAS of NCCL {version}, {asked}{took}{late}"]
    lines += _communicators(frame, response, earlier) if report.form == "json" else _text(report)
    lines += ["", *(f"note  {note}" for note in report.notes)]
    lines += [f"not covered  {text}" for text in NOT_COVERED]
    return [printable(line) for line in lines]


def _communicators(
    frame: BaseFrame, response: wire.RasResponse, earlier: wire.RasResponse | None
) -> Iterator[str]:
    report = response.report
    assert report is not None
    if not report.communicators:
        yield "no communicator: none exists, or RAS has collected none"
    changes = None
    if earlier is not None and earlier.report is not None:
        changes = moved(earlier.report, report)
        seconds = (response.at_ns - earlier.at_ns) / 1e9
        yield f"compared with its answer {seconds:.0f} s before"
    found = memberships(frame, response)
    for one, members in list(zip(report.communicators, found, strict=True))[:MAX_COMMUNICATORS]:
        yield ""
        yield f"communicator {one.hash}, {counted(one.size, 'rank')}: {_group_words(members)}"
        yield from _counts(one, members)
        yield from _out_of_order(one, members)
        if changes is not None:
            yield from _changes(one, members, changes.get((one.hash, one.secondary_hash)))
    if len(report.communicators) > MAX_COMMUNICATORS:
        left = len(report.communicators) - MAX_COMMUNICATORS
        yield f"and {left} more communicators: --json has all"


def _group_words(members: Membership) -> str:
    if not members.groups:
        known = sum(rank is not None for rank in members.ranks)
        if not known:
            return "none of its processes is known here"
        return f"no process group that is known has its members ({known} of them are known)"
    if len(members.groups) == 1 and members.twins == 1:
        sure = "" if None not in members.ranks else ", as far as its members are known"
        return f"process group {members.groups[0]}{sure}"
    alike = f"; {members.twins} communicators have these members" if members.twins > 1 else ""
    return f"ambiguous, {listed(members.groups, 4, ' or ')}: equal members{alike}"


def _counts(one: wire.RasCommunicator, members: Membership) -> Iterator[str]:
    rows = counts_by_kind(one)
    if not rows:
        yield "  no rank of it has launched anything that is counted"
        return
    table = [("kind", "most", "who has launched fewer")]
    for row in rows:
        fewer = [
            f"{_name(members, rank)}: {count:,} ({row.most - count:,} fewer)"
            for rank, count in row.fewer
        ]
        words = listed(fewer, MAX_FEWER, "; ") if fewer else "nobody"
        table.append((row.kind, f"{row.most:,}", words))
    widths = [max(len(cells[column]) for cells in table) for column in (0, 1)]
    for kind, most, words in table:
        yield f"  {kind:<{widths[0]}}  {most:>{widths[1]}}  {words}"


def _out_of_order(one: wire.RasCommunicator, members: Membership) -> Iterator[str]:
    """Ranks that are missing, or in another state than running."""
    for missing in one.missing:
        if missing.considered_dead:
            words = "considered dead by RAS, for good"
        elif missing.unresponsive:
            words = "unresponsive: RAS does not reach its process"
        else:
            words = "missing: its process answers, and not of this communicator"
        yield f"  {_name(members, missing.rank)} ({_process(missing)}): {words}"
    for rank in one.ranks:
        if words := ", ".join(status_words(rank)):
            yield f"  {_name(members, rank.rank)} ({_process(rank)}): {words}"
    unlisted = one.size - len(one.ranks) - len(one.missing)
    if unlisted > 0:
        yield f"  not in the answer at all: {counted(unlisted, 'rank')}"


def _changes(
    one: wire.RasCommunicator, members: Membership, changed: frozenset[int] | None
) -> Iterator[str]:
    if changed is None:
        yield "  it was not in the earlier answer"
        return
    same = [rank.rank for rank in one.ranks if rank.rank not in changed]
    if same:
        yield f"  not moved: {_names(members, same)}"
    if changed:
        yield f"  moved: {_names(members, sorted(changed))}"


def _text(report: wire.RasReport) -> Iterator[str]:
    """What an older NCCL says, in its own words where they are not a table."""
    for row in report.rows:
        yield (
            f"  {counted(row.communicators, 'communicator')} of {counted(row.size, 'rank')} on"
            f" {counted(row.nodes, 'node')}:"
            f" {row.status.lower()}, {row.errors.lower().replace(',', ', ')}"
        )
    if not report.problems:
        yield "  no problem is listed"
    for problem in report.problems:
        whose = f" in communicator {problem.communicator}" if problem.communicator else ""
        yield ""
        yield f"{problem.section[:-1]} {problem.kind}{whose}"
        yield from (f"  {line}" for line in problem.lines[:MAX_PROBLEM_LINES])
        if len(problem.lines) > MAX_PROBLEM_LINES:
            yield f"  and {counted(len(problem.lines) - MAX_PROBLEM_LINES, 'more line')}"


def _name(members: Membership, rank: int) -> str:
    """`rank 3`, or its number in the communicator where the job's is not known."""
    known = members.ranks[rank] if rank < len(members.ranks) else None
    return f"rank {known}" if known is not None else f"its rank {rank}"


def _names(members: Membership, ranks: Sequence[int]) -> str:
    known = [members.ranks[rank] if rank < len(members.ranks) else None for rank in ranks]
    if None in known:
        return f"its {folded(ranks)}"
    return folded(rank for rank in known if rank is not None)


def _process(one: wire.RasRank | wire.RasMissingRank) -> str:
    return f"process {one.pid or 'unknown'} on {one.host or 'an unknown host'}"
