"""What is in the tensors of pending ops, as lines: statistics, NaN first, who has the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.judged import Frame, JudgedRank
from frtop_tui.widgets.agreement import Agreement, agreement, known_op
from frtop_tui.widgets.spans import Line, flow, plain, wrap
from frtop_tui.widgets.wording import (
    age,
    amount,
    cut,
    group_of,
    kind,
    number,
    ranks_word,
    site,
    tensors,
)

HELP: Final = {
    "gone": "its process has ended: there is nobody left to ask",
    "silent": "it holds the GIL and cannot answer; its stack says where (esc, then b)",
    "stopped": "its process is stopped; `kill -CONT` lets it answer",
    "deadline": "it did not answer in time; + asks again",
    "none": "it has no pending op, so there are no tensors to look into",
    "missing": "it answers nobody: its recorder is older, or could not start, or the file of its"
    " socket was deleted; see its notes",
    "failed": "it could not say; + asks again",
}
"""For an answer that brings no sentence of its own."""
INDENT: Final = " " * 4


def op_head(rank: JudgedRank, sequence: int, now_ns: int, width: int) -> list[Line]:
    """Which op, since when, and whether the rank waits in it."""
    op = known_op(rank, sequence)
    if op is None:
        return flow((plain("an op", "strong"), plain("no longer pending", "dim")), width)
    name = " ".join(filter(None, (kind(op), number(op), group_of(rank, op))))
    waited = rank.blocked_on is not None and rank.blocked_on.sequence == sequence
    if any(one.sequence == sequence for one in (*rank.pending, rank.blocked_on) if one):
        state = plain(f"pending {age(rank.age_s(op.issued_ns, now_ns))}", "warn")
    else:
        state = plain("no longer pending", "dim")
    reduce = op.signature.reduce if op.signature is not None else None
    parts = (
        plain(f"{name} {reduce}" if reduce else name, "strong"),
        state,
        plain("waits in it" if waited else ""),
        plain(site(op.site), "dim"),
    )
    return flow(parts, width)


def _value(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _count(word: str, count: int) -> Line:
    return plain(f"{word} {count:,}", "bad" if count else "")


def summary_lines(
    summary: wire.TensorSummary, label: str, agreed: Agreement, width: int, *, reduced: bool = False
) -> list[Line]:
    """One tensor. What is wrong in it comes before what is usual."""
    spec = tensors((wire.TensorSpec(summary.dtype, summary.shape),))
    parts = [
        plain(f"{label} {spec}", "strong"),
        plain(summary.device),
        plain(amount(summary.size)),
    ]
    rows = flow(parts, width, "  ")
    if summary.error:
        return rows + wrap(summary.error, width, "warn", (INDENT, ""))
    if summary.seen < summary.elements:
        few = f"only the first {summary.seen:,} of {summary.elements:,} values were looked at"
        rows += wrap(few, width, "warn", (INDENT, ""))
    empty = summary.minimum is None
    stats = [_count("NaN", summary.nans), _count("Inf", summary.infinities)]
    if empty:
        stats.append(plain("no value left" if summary.elements else "no values"))
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
        rows += wrap(
            _compared(agreed, reduced=reduced),
            width,
            "",
            (f"{INDENT}checksum {summary.checksum}  ", ""),
        )
    return rows


def reduces(op: wire.Op | None) -> bool:
    """Whether the op computes what is in its tensors, so that its inputs differ by nature."""
    told = op.signature if op is not None else None
    return told is not None and (bool(told.reduce) or "reduce" in told.kind)


def _compared(agreed: Agreement, *, reduced: bool) -> str:
    """Who has the same; that what is reduced differs from rank to rank is usual: no alarm."""
    told = (
        ("same on", agreed.same),
        ("differs, as what is reduced does, on" if reduced else "differs on", agreed.differ),
        ("cannot be compared on", agreed.other),
    )
    words = [
        f"{word} {'rank' if len(ranks) == 1 else 'ranks'} {cut(fold(ranks), 40)}"
        for word, ranks in told
        if ranks
    ]
    if agreed.unasked:
        words.append(f"{ranks_word(len(agreed.unasked))} of its group not asked")
    if agreed.none:
        words.append(
            f"{len(agreed.none):,} {'has' if len(agreed.none) == 1 else 'have'} none pending"
        )
    if agreed.mute:
        words.append(f"{len(agreed.mute):,} could not say")
    return "; ".join(words)


def op_lines(frame: Frame, rank: JudgedRank, op: wire.OpTensors, width: int) -> Iterator[Line]:
    """One pending op with all its tensors."""
    yield from op_head(rank, op.sequence, frame.now_ns, width)
    if op.error:
        yield from wrap(op.error, width, "warn", ("  ", ""))
    reduced = reduces(known_op(rank, op.sequence))
    if reduced and op.tensors:
        words = "may be partly reduced already: values of ranks can differ"
        yield from wrap(words, width, "dim", ("  ", ""))
    roles = [summary.role for summary in op.tensors]
    for index, summary in enumerate(op.tensors):
        role, count = summary.role, roles.count(summary.role)
        place = roles[: index + 1].count(role)
        label = role if count == 1 else f"{role} {place} of {count}"
        agreed = agreement(frame, rank, op.sequence, index)
        yield from summary_lines(summary, label, agreed, width, reduced=reduced)


def error_lines(answer: wire.TensorsResponse, rank: int, width: int) -> list[Line]:
    """Why the rank did not say, and what to do about it."""
    if not answer.error:
        return []
    text = answer.help or HELP.get(answer.error, answer.error)
    tone = "" if answer.error == "none" else "warn"
    return wrap(text, width, tone, (f"rank {rank}  ", "strong"))
