"""What frtop saw of each rank in a frame, in a line each: why a run came out as it did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from zoo.ground_truth import headlines

if TYPE_CHECKING:
    from frtop_probe import wire
    from frtop_tui.diagnosis.model import Frame, JudgedRank

FRAMES: Final = 4


def details(frame: Frame) -> str:
    """Returns health, verdicts and what is known of every rank."""
    return "\n".join(_lines(frame))


def _lines(frame: Frame) -> Iterator[str]:
    yield f"{frame.health}: {headlines(frame.verdicts) or 'no verdict'}"
    for verdict in frame.verdicts:
        yield from (f"  evidence: {text}" for text in verdict.evidence)
        yield from (f"  missing: {text}" for text in verdict.missing)
    if frame.problem is not None:
        yield f"problem: {frame.problem}"
    yield from (f"note: {note}" for note in frame.notes)
    yield from (
        f"host {host.name} {host.state}: {note}" for host in frame.hosts for note in host.notes
    )
    yield from (f"coverage: {note.text}" for note in frame.coverage.notes)
    for rank in frame.ranks.values():
        yield from _rank(rank, frame.now_ns)


def _rank(rank: JudgedRank, now_ns: int) -> Iterator[str]:
    numbers = " ".join(
        f"{group.description or group.name}#{front.number}"
        for number, front in rank.group_progress.items()
        if (group := rank.groups.get(number)) is not None
    )
    pending = ", ".join(_op(op, rank, now_ns) for op in rank.pending) or "nothing"
    yield f"rank {rank.rank} {rank.state}: {numbers or 'no numbers'}; pending {pending}"
    if rank.process is not None:
        process = rank.process
        yield f"  process {process.state} {process.syscall or '-'} {process.wchan or '-'}"
    if rank.exit_info is not None:
        yield f"  ended: {rank.exit_info}"
    for thread in rank.threads:
        frames = " < ".join(f"{f.function}:{f.line}" for f in thread.frames[:FRAMES])
        yield f"  {thread.name}: {frames}"
    yield from (f"  note: {note}" for note in rank.notes)


def _op(op: wire.Op, rank: JudgedRank, now_ns: int) -> str:
    kind = op.signature.kind if op.signature is not None else "?"
    age = rank.age_s(op.issued_ns, now_ns)
    seen = "" if op.dated else " or more"
    group = rank.groups.get(op.group)
    where = f" in {group.description or group.name}" if group is not None else ""
    return f"{kind} #{op.number}{where} for {age:.1f} s{seen}"
