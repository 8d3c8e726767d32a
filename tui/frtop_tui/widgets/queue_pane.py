"""The ops of a rank: pending ones with their age, then recent ones among steps and notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.issuer_words import brief_issuer
from frtop_tui.job.naming import group_label, printable
from frtop_tui.job.stack_frames import site_name
from frtop_tui.job.units import counted, live_duration, timing
from frtop_tui.job.unprepared import NEXT_TIME, age_text, recorder_note
from frtop_tui.text.rank_words import format_tensors, op_group, op_kind, op_number
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, fit, plain, wrap

PARTS: Final = ("fetch", "forward", "backward", "optimizer")
_NOW: Final = 2**63
Placed = tuple[int, Line]
"""A line, and its time on the rank's host."""


def step_lines(
    rank: JudgedRank, marks: Iterable[wire.Mark], now_ns: int, width: int
) -> list[Placed]:
    """The lines of a rank's marks, newest first: a step stands above its ops."""
    placed: list[Placed] = []
    parts: list[wire.Mark] = []
    before: wire.Mark | None = None
    for mark in marks:
        if mark.kind == "note":
            words = f"note, {_age(rank, mark.begin_ns, now_ns)} ago: {printable(mark.text)}"
            placed.append((mark.begin_ns, _line(words, width)))
        elif mark.kind == "step":
            placed.append((mark.end_ns, _line(_step(before, mark, parts), width)))
            before, parts = mark, []
        elif mark.kind in PARTS:
            parts.append(mark)
    if parts or before is not None:
        placed.append((_NOW, _line(_unfinished(rank, before, parts, now_ns), width)))
    return sorted(placed, key=lambda one: -one[0])


def _step(before: wire.Mark | None, step: wire.Mark, parts: Sequence[wire.Mark]) -> str:
    """`step 412 took 1.00 s: fetch 12.0 ms, backward 80.1 ms; 4,096 samples`.

    The start of the first step is unknown: only its end is shown.
    """
    samples = f"; {counted(step.samples, 'sample')}" if step.samples else ""
    if before is None:
        return f"step {step.number:,} ended{samples}"
    took, sums = timing(step.end_ns - before.end_ns), _sums(parts)
    return f"step {step.number:,} took {took}{f': {sums}' if sums else ''}{samples}"


def _unfinished(
    rank: JudgedRank, before: wire.Mark | None, parts: Sequence[wire.Mark], now_ns: int
) -> str:
    """What is known about the rank's current step, and which part of it is under way."""
    over = rank.exit_info is not None
    done = [mark for mark in parts if mark.end_ns]
    words = [_sums(done)] if done else []
    words += [
        f"in {mark.kind} {'at its end' if over else 'for ' + _age(rank, mark.begin_ns, now_ns)}"
        for mark in parts
        if not mark.end_ns
    ]
    title = f"in step {before.number + 1:,}" if before is not None else "in a step"
    if over:
        title = f"ended {title}"
    elif before is not None:
        title += f" for {_age(rank, before.end_ns, now_ns)}"
    return f"{title}: {', '.join(words)}" if words else title


def _sums(parts: Iterable[wire.Mark]) -> str:
    """`fetch 12.0 ms, forward 40.2 ms (3 times)`."""
    took: dict[str, list[int]] = {}
    for mark in parts:
        took.setdefault(mark.kind, []).append(mark.end_ns - mark.begin_ns)
    return ", ".join(
        f"{kind} {timing(sum(took[kind]))}"
        + (f" ({len(took[kind])} times)" if len(took[kind]) > 1 else "")
        for kind in PARTS
        if kind in took
    )


def _age(rank: JudgedRank, since_ns: int, now_ns: int) -> str:
    return live_duration(rank.age_s(since_ns, now_ns))


def _line(words: str, width: int) -> Line:
    return (("- ", "dim"), (fit(words, max(10, width - 2)).rstrip(), "dim"))


@dataclass(frozen=True, slots=True)
class Widths:
    """Column widths by content; the tensors get the rest."""

    number: int
    group: int
    kind: int
    site: int
    usual: int = 0
    issuer: int = 0

    @classmethod
    def of(cls, rank: JudgedRank, ops: Iterable[wire.Op]) -> Widths:
        rows = [
            (
                op_number(op),
                op_group(rank, op),
                op_kind(op),
                site_name(op.site),
                usual_wait(op) if op.pending else "",
                brief_issuer(op.issuer),
            )
            for op in ops
        ]
        longest = [max((len(row[n]) for row in rows), default=0) for n in range(6)]
        short = (min(16, longest[1]), min(24, longest[2]), min(22, longest[3]))
        return cls(longest[0], *short, longest[4], min(40, longest[5]))


def op_line(
    rank: JudgedRank, op: wire.Op, took: tuple[str, str], columns: Widths, width: int
) -> Line:
    """Number, group, kind, tensors, duration, issuer, line.

    Narrow panes cut the tensors, and leave out the line beside an issuer.
    """
    blocking = rank.blocked_on is not None and op.sequence == rank.blocked_on.sequence
    signature = op.signature
    what = "" if signature is None else format_tensors(signature.inputs or signature.outputs)
    usual: Line = ()
    if columns.usual:
        text = usual_wait(op) if op.pending else ""
        usual = (("  " + fit(text, columns.usual), "dim"),)
        width -= columns.usual + 2
    issuer: Line = ()
    if columns.issuer:
        issuer = (("  " + fit(brief_issuer(op.issuer), columns.issuer), ""),)
        width -= columns.issuer + 2
    head = " ".join(
        (
            fit(op_number(op), columns.number),
            fit(op_group(rank, op), columns.group),
            fit(op_kind(op), columns.kind),
        )
    )
    site: Line = (("  " + fit(site_name(op.site), columns.site), "dim"),)
    room = width - len(head) - columns.site - 16
    if issuer and room < 0:
        site, room = (), room + columns.site
    room = max(0, min(48, room))
    if signature is not None and signature.reduce and len(what) + len(signature.reduce) < room:
        what = f"{what} {signature.reduce}"
    return (
        ("> " if blocking else "  ", "strong"),
        (head + "  ", "strong" if blocking else ""),
        (fit(what, room), "dim"),
        (" " + fit(took[0], 9, right=True), took[1]),
        *usual,
        *issuer,
        *site,
    )


def usual_wait(op: wire.Op) -> str:
    """`usually 18.2 ms`: how long ops at its line take; "" if unknown."""
    return f"usually {timing(op.usual_ns)}" if op.usual_count else ""


def queue_lines(
    rank: JudgedRank, now_ns: int, width: int, ahead: Mapping[Identifier, int] | None = None
) -> list[Line]:
    """Pending ops, then recent ones, newest first; without a recorder, how far its groups are.

    `ahead`: the furthest number of any rank, by group.
    """
    rows: list[Line] = []
    pending = sorted(rank.pending, key=lambda op: op.sequence)
    known = {op.sequence for op in pending}
    if rank.blocked_on is not None and rank.blocked_on.sequence not in known:
        pending.append(rank.blocked_on)
        known.add(rank.blocked_on.sequence)
    snapshot = rank.snapshot
    recent = [] if snapshot is None else [op for op in snapshot.ops if op.sequence not in known]
    if not rank.evidence.has_one_naming:
        waiting = {(op.group, op.number, op.p2p) for op in pending}
        recent = [op for op in recent if (op.group, op.number, op.p2p) not in waiting]
    recent.sort(key=lambda op: -op.sequence)
    columns = Widths.of(rank, (*pending, *recent))
    if pending:
        waits = " (> blocked in it)" if rank.blocked_on is not None else ", blocked in none"
        if rank.exit_info is not None:
            waits = ", when its process ended"
        rows.append((("pending  ", "dim"), (f"{len(pending) + rank.pending_more}{waits}", "")))
    for op in pending:
        lasted_s = rank.age_s(op.issued_ns, rank.until_ns(now_ns))
        took = (age_text(lasted_s, least=not op.dated), "warn")
        rows.append(op_line(rank, op, took, columns, width))
    if rank.pending_more:
        rows.append(plain(f"  and {rank.pending_more} more pending", "dim"))
    rows += device_lines(rank, now_ns)
    if not rank.identity.prepared:
        none: list[Line] = [] if pending else [_pending_of_unprepared(rank)]
        fronts = _group_lines(rank, now_ns, ahead or {})
        history = [op_line(rank, op, _ended(rank, op, now_ns), columns, width) for op in recent]
        # Ops before what is unknown: a small pane has room for few lines.
        source, limits = _source_of(rank, width, split=bool(history))
        return [*none, *rows, *fronts, *source, *history, *limits]
    head: Line = () if pending else (("pending  ", "dim"), ("none", "strong"), ("    ", ""))
    if snapshot is None:
        return [*rows, (*head, ("recent   none read yet", "dim"))]
    since = live_duration(rank.age_s(snapshot.at_ns, now_ns))
    words = f"recent   as of {since} ago" if recent else "recent   none known"
    rows.append((*head, (words, "dim")))
    placed = [(op.issued_ns, op_line(rank, op, _took(op), columns, width)) for op in recent]
    # Both are newest first already; ops with the same time keep their order.
    others = step_lines(rank, snapshot.marks, now_ns, width)
    rows += [line for _, line in merge(others, placed, key=lambda one: -one[0])]
    if snapshot.ops_lost:
        rows.append(
            plain(f"  {counted(snapshot.ops_lost, 'op')} in between could not be read", "warn")
        )
    return rows


def device_lines(rank: JudgedRank, now_ns: int) -> list[Line]:
    """For each group with ops on a device: how far the device is, and since when."""
    rows: list[Line] = []
    for number, group in rank.groups.items():
        progress = rank.group_progress.get(number)
        if group.gone or progress is None or not (progress.watched or group.blind or group.error):
            continue
        parts = [group_label(group.name, group.description)]
        tone = "dim"
        if group.blind:
            parts.append("not seen")
        elif progress.watched:
            words, tone = _device_progress(rank, progress, now_ns)
            parts.append(words)
        if group.error:
            parts.append(f"error {group.error}")
            tone = "bad"
        rows.append((("device   " if not rows else "         ", "dim"), ("  ".join(parts), tone)))
    return rows


def _device_progress(
    rank: JudgedRank, progress: wire.GroupProgress, now_ns: int
) -> tuple[str, str]:
    """`#1,250 handed over, #960 done, at #961 for 3.1s`, and its tone."""
    in_call = f"#{progress.number:,} in its call"
    if progress.number <= progress.enqueued:
        in_call = ""
    if progress.completed >= progress.enqueued:
        done = f"#{progress.completed:,} done" if progress.completed else "none done"
        return ", ".join(filter(None, (done, in_call))), "warn" if in_call else "dim"
    words = ", ".join(filter(None, (f"#{progress.enqueued:,} handed over", in_call)))
    first = next((op for op in rank.pending if op.group == progress.group and op.enqueued), None)
    since_ns = max(progress.advanced_ns, first.issued_ns if first is not None else 0)
    done = f"#{progress.completed:,} done" if progress.completed else "none done"
    at = f"at #{progress.completed + 1:,} for {live_duration(rank.age_s(since_ns, now_ns))}"
    return (f"{words}, {done}, {at}", "warn") if since_ns else (f"{words}, {done}", "dim")


def _pending_of_unprepared(rank: JudgedRank) -> Line:
    """That nothing is pending, or that c10d cannot be read."""
    if rank.identity.c10d_readable:
        return (("pending  ", "dim"), ("none", "strong"))
    return (("pending  ", "dim"), ("not known: c10d state is not readable", "warn"))


def _group_lines(rank: JudgedRank, now_ns: int, ahead: Mapping[Identifier, int]) -> list[Line]:
    """For each group: the last op that the rank issued, when, and how far others are."""
    rows: list[Line] = []
    groups = {number: group for number, group in rank.groups.items() if not group.gone}
    names = {number: group_label(group.name, group.description) for number, group in groups.items()}
    wide = min(24, max(map(len, names.values()), default=0))
    for number, group in groups.items():
        progress = rank.group_progress.get(number)
        parts = [fit(names[number], wide)]
        tone = "dim"
        if progress is None:
            parts.append("no number readable")
        else:
            furthest = ahead.get(identifier(group), 0)
            least = progress.last is None or not progress.last.dated
            age = age_text(rank.age_s(progress.issued_ns, now_ns), least=least)
            words = f"#{progress.number} issued {age} ago" if progress.number else "no op yet"
            if furthest > progress.number and group.exact:
                tone = "warn"
                words += f"; #{furthest} not issued"
            parts.append(words)
        label = "groups   " if not rows else "         "
        rows.append(((label, "dim"), ("  ".join(parts), tone)))
    return rows


def _source_of(rank: JudgedRank, width: int, *, split: bool) -> tuple[list[Line], list[Line]]:
    """The source of past ops, or why there are none and what to do next time.

    With `split`, the first clause apart from the others.
    """
    note = rank.snapshot.ops_note if rank.snapshot is not None else ""
    note = note or recorder_note(rank) or f"not recorded; {NEXT_TIME}"
    head, _, rest = note.partition("; ") if split else (note, "", "")
    lines = wrap(head, width, "dim", ("history  ", "dim"))
    return lines, wrap(rest, width, "dim", ("         ", "dim")) if rest else []


def _ended(rank: JudgedRank, op: wire.Op, now_ns: int) -> tuple[str, str]:
    """How long an op took; if that is unknown and it is over, when it was issued."""
    if op.timed or not op.done_ns:
        return _took(op)
    return (f"{live_duration(rank.age_s(op.issued_ns, now_ns))} ago", "dim")


def _took(op: wire.Op) -> tuple[str, str]:
    if op.done_ns < 0:
        return ("failed", "bad")
    if op.done_ns == 0 and op.on_device and op.tracked:
        return ("queued" if op.enqueued else "in its call", "dim")
    if op.done_ns == 0:
        # It ended after the snapshot, unseen.
        return ("-", "dim")
    # `≤`: it was complete by then, perhaps for a while.
    return (f"{'≤' * op.late}{timing(op.done_ns - op.issued_ns)}", "")


class QueuePane(LineView):
    """Follows the newest op; once scrolled down, it stays until `F`."""

    def __init__(self) -> None:
        super().__init__(id="queue", classes="pane")
        self.entitle("op queue")
        self.rank: JudgedRank | None = None
        self.now_ns = 0
        self.ahead: dict[Identifier, int] = {}

    def show(self, frame: Frame, rank: JudgedRank) -> None:
        same = self.rank is not None and self.rank.rank == rank.rank
        if same and self.scroll_offset.y > 0:
            # Lines that move cannot be read.
            self.entitle("op queue (paused, F follows)")
            return
        self.entitle("op queue")
        self.rank, self.now_ns = rank, frame.now_ns
        if not rank.identity.prepared:
            self.ahead = {identifier(group.key): group.number for group in frame.groups}
        self.redraw()

    def follow(self) -> None:
        """Scrolls back to the newest op."""
        self.scroll_to(y=0, animate=False)
        self.entitle("op queue")

    def content(self, width: int) -> Sequence[Line]:
        if self.rank is None:
            return ()
        return queue_lines(self.rank, self.now_ns, width, self.ahead)
