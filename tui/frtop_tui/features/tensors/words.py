"""The tensors of pending ops as lines: statistics, NaN first, and what other members have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.tensors.comparison import (
    compare_members,
    find_op,
)
from frtop_tui.features.tensors.comparison_words import member_words
from frtop_tui.job.issuer_words import issuer_text
from frtop_tui.job.stack_frames import site_name
from frtop_tui.job.units import byte_size
from frtop_tui.job.unprepared import age_text
from frtop_tui.text.rank_words import format_tensors, op_name
from frtop_tui.widgets.spans import Line, flow, plain, wrap

HELP: Final = {
    "gone": "its process has ended and cannot answer",
    "silent": "it holds the GIL and cannot answer; its stack shows where (esc, then b)",
    "stopped": "its process is stopped; `kill -CONT` lets it answer",
    "deadline": "it did not answer in time; + asks again",
    "none": "it has no pending op, so there are no tensors",
    "missing": "it cannot be asked: its recorder is older, or failed to start, or its socket"
    " file was deleted; see its notes",
    "unprepared": "it has no recorder: nothing in it can answer",
    "failed": "it failed to read its tensors; + asks again",
}
"""Sentences for errors that come without help."""
INDENT: Final = " " * 4


def op_head(rank: JudgedRank, sequence: int, now_ns: int, width: int) -> list[Line]:
    """Name, age and line of the op, and whether the rank is blocked in it."""
    op = find_op(rank, sequence)
    if op is None:
        return flow((plain("an op", "strong"), plain("no longer pending", "dim")), width)
    name = op_name(rank, op)
    blocking = rank.blocked_on is not None and rank.blocked_on.sequence == sequence
    if any(one.sequence == sequence for one in (*rank.pending, rank.blocked_on) if one):
        age = age_text(rank.age_s(op.issued_ns, now_ns), least=not op.dated)
        state = plain(f"pending {age}", "warn")
    else:
        state = plain("no longer pending", "dim")
    reduce = op.signature.reduce if op.signature is not None else None
    parts = (
        plain(f"{name} {reduce}" if reduce else name, "strong"),
        state,
        plain("blocked in it" if blocking else ""),
        plain(issuer_text(op.issuer)),
        plain(site_name(op.site), "dim"),
    )
    return flow(parts, width)


def _value(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _count(word: str, count: int) -> Line:
    return plain(f"{word} {count:,}", "bad" if count else "")


def summary_lines(summary: wire.TensorSummary, label: str, width: int) -> list[Line]:
    """One tensor; NaN and Inf come first."""
    spec = format_tensors((wire.TensorSpec(summary.dtype, summary.shape),))
    parts = [
        plain(f"{label} {spec}", "strong"),
        plain(summary.device),
        plain(byte_size(summary.size)),
    ]
    rows = flow(parts, width, "  ")
    if summary.error:
        return rows + wrap(summary.error, width, "warn", (INDENT, ""))
    if summary.seen < summary.elements:
        partly = f"only the first {summary.seen:,} of {summary.elements:,} values were read"
        rows += wrap(partly, width, "warn", (INDENT, ""))
    empty = summary.minimum is None
    stats = [_count("NaN", summary.nans), _count("Inf", summary.infinities)]
    if empty:
        stats.append(plain("no finite values" if summary.elements else "no values"))
    else:
        names = (("min", summary.minimum), ("max", summary.maximum))
        means = (("mean", summary.mean), ("norm", summary.norm))
        stats += [plain(f"{name} {_value(value)}") for name, value in (*names, *means)]
    rows += flow(stats, width, INDENT)
    if summary.first:
        more = " ..." if summary.elements > len(summary.first) else ""
        first = " ".join(summary.first) + more
        rows += wrap(first, width, "dim", (f"{INDENT}first values ", "dim"))
    if summary.checksum:
        rows += wrap(f"checksum {summary.checksum}", width, "", (INDENT, ""))
    return rows


def reduces(op: wire.Op | None) -> bool:
    """Whether the op reduces its tensors: then inputs differ between healthy ranks."""
    signature = op.signature if op is not None else None
    return signature is not None and (bool(signature.reduce) or "reduce" in signature.kind)


def op_lines(frame: Frame, rank: JudgedRank, op: wire.OpTensors, width: int) -> Iterator[Line]:
    """A pending op with all its tensors."""
    yield from op_head(rank, op.sequence, frame.now_ns, width)
    if op.error:
        yield from wrap(op.error, width, "warn", ("  ", ""))
    if op.tensors and reduces(find_op(rank, op.sequence)):
        words = "may be partly reduced already: values can differ between ranks"
        yield from wrap(words, width, "dim", ("  ", ""))
    yield from compared_lines(frame, rank, op.sequence, width)
    roles = [summary.role for summary in op.tensors]
    for index, summary in enumerate(op.tensors):
        role, count = summary.role, roles.count(summary.role)
        position = roles[: index + 1].count(role)
        label = role if count == 1 else f"{role} {position} of {count}"
        yield from summary_lines(summary, label, width)


def compared_lines(frame: Frame, rank: JudgedRank, sequence: int, width: int) -> Iterator[Line]:
    """What the members that were asked say of this op, once there is another one."""
    found = compare_members(frame, rank, sequence)
    if found is None or len(found.answered) + len(found.no_answer) + len(found.not_pending) < 2:
        return
    for one in member_words(found):
        head = (f"  {one.subject}  ", "strong") if one.subject else (INDENT, "")
        yield from wrap(one.text, width, one.tone, head)


def error_lines(answer: wire.TensorsResponse, rank: int, width: int) -> list[Line]:
    """Why the rank did not answer, and what to do about it."""
    if not answer.error:
        return []
    text = answer.help or HELP.get(answer.error, answer.error)
    tone = "" if answer.error == "none" else "warn"
    return wrap(text, width, tone, (f"rank {rank}  ", "strong"))
