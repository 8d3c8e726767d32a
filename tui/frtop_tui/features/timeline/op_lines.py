"""The op under the cursor of a timeline in words: what, when, who it waited for, how fast."""

from __future__ import annotations

from typing import Final

from frtop_probe import wire
from frtop_probe.statistics.op_bytes import op_bytes
from frtop_tui.features.timeline.cells import NOTHING, cells_of
from frtop_tui.features.timeline.lane import Lane
from frtop_tui.features.timeline.letters import PHASES
from frtop_tui.features.timeline.meetings import Meeting
from frtop_tui.features.timeline.queue_cells import op_name
from frtop_tui.job.issuer_words import issuer_text
from frtop_tui.job.naming import folded
from frtop_tui.job.stack_frames import site_name
from frtop_tui.job.units import byte_rate, counted, exact_clock, timing
from frtop_tui.statistics.bandwidth import bus_factor
from frtop_tui.text.rank_words import op_group, op_kind, op_number, op_tensors
from frtop_tui.widgets.spans import Line, join, plain

_FEWEST_NS: Final = 1000
"""No bandwidth is shown for a shorter transfer: it was over when the last rank came."""


def op_lines(
    lane: Lane, position: int, begun: int, meeting: Meeting | None, wall_ns: int
) -> list[Line]:
    """Two lines about an op.

    `begun` is how many ops began in the cursor's column; `meeting` is the same op on all ranks, if
    it has a number; `wall_ns`, added to the operator's clock, gives Unix time.
    """
    op = lane.ops.op(position)
    name = " ".join(filter(None, (op_kind(op), op_number(op))))
    what = join(
        (
            plain(name, "strong"),
            plain(op_group(lane, op)),
            plain(op_tensors(op)),
            plain(issuer_text(op.issuer)),
            plain(site_name(op.site), "dim"),
            plain(f"issued {exact_clock(op.issued_ns + lane.clock_ns + wall_ns)}", "dim"),
            plain(f"longest of {begun:,} in this column" if begun > 1 else "", "dim"),
        )
    )
    parts = [_took(lane, position), *_waited(lane, op, meeting)]
    return [what, join(plain(part) for part in parts)]


def gap_text(lane: Lane, at_ns: int) -> str:
    """Why there is no op in a lane at a time of the operator's clock."""
    if lane.why_none:
        return lane.why_none
    at = at_ns - lane.clock_ns
    if at < lane.ops.known_from:
        return "not recorded any more: its ring holds newer ops only"
    if lane.ended_ns is not None and at >= lane.ended_ns:
        return "its process had ended"
    if at >= lane.ops.known_until:
        return "not known yet" if lane.ended_ns is None else "not read before its process ended"
    before = lane.last_by(at_ns)
    if before < 0:
        return "no op is pending"
    ended = lane.ops.end[before] if lane.ops.end_known(before) else lane.ops.issued[before]
    since = timing(max(0, at - ended))
    return f"no op is pending; {op_name(lane, lane.ops.op(before))} was {since} before"


def mark_line(lane: Lane, at_ns: int, column_ns: int, wall_ns: int) -> Line:
    """Phases, the step and notes at the cursor; empty without any."""
    begin = at_ns - lane.clock_ns
    parts: list[Line] = []
    spans, until = lane.spans, lane.ops.known_until
    for position in cells_of(spans, begin, column_ns, 1, until).positions:
        if position != NOTHING:
            mark = spans.marks[position]
            name = "data" if mark.kind == "fetch" else mark.kind
            took = (mark.end_ns or until) - mark.begin_ns
            parts.append(plain(f"{name} {'' if mark.end_ns else 'for '}{timing(took)}"))
    step = next((mark for mark in lane.steps if mark.end_ns >= begin), None)
    if step is not None:
        lasted = timing(step.end_ns - step.begin_ns) * (step.begin_ns < step.end_ns)
        ends = exact_clock(step.end_ns + lane.clock_ns + wall_ns)
        parts.append(plain(" ".join(filter(None, (f"step {step.number}", lasted, f"ends {ends}")))))
    here = [mark.text for mark in lane.notes if begin <= mark.begin_ns < begin + column_ns]
    parts += [plain(f"note {text}", "key") for text in here]
    return join(parts[: len(PHASES) + 4])


def lost_text(lane: Lane) -> str:
    """How many ops of a lane are missing in between; "" if none are."""
    lost = lane.ops.lost
    return f"{counted(lost, 'op')} in between cannot be read" if lost else ""


def error_text(error_ns: int | None) -> str:
    """How far the clocks of hosts may be apart: `clocks ±400 µs`."""
    if error_ns is None:
        return "clocks of hosts not compared"
    return f"clocks ±{timing(error_ns)}" if error_ns else "one clock"


def _took(lane: Lane, position: int) -> str:
    ops = lane.ops
    if ops.pending(position):
        lasted = timing(lane.pending_ns(position, ops.known_until))
        if lane.ended_ns is not None:
            return f"still pending after {lasted}, when its process ended"
        return f"pending for {lasted}"
    if not ops.end_known(position):
        return "its end is not known"
    took = timing(abs(ops.took[position]))
    if ops.took[position] < 0:
        return f"failed after {took}"
    return f"took {'at most ' * (lane.at_most or ops.at_most(position))}{took}"


def _waited(lane: Lane, op: wire.Op, meeting: Meeting | None) -> list[str]:
    """Which rank this one waited for, and how fast the data moved once all had arrived."""
    if meeting is None:
        return [] if op.group == 0 or op.p2p or op.pseudo else ["numbers cannot be compared"]
    known, members = len(meeting.issued_ns), len(meeting.members)
    parts: list[str] = []
    if meeting.absent:
        parts.append(f"{folded(meeting.absent)} ha{'s' if len(meeting.absent) == 1 else 've'} not"
                     " issued it")  # fmt: skip
    if len(meeting.kinds) > 1:
        calls = "; ".join(f"{kind}: {folded(who)}" for kind, who in meeting.kinds.items())
        return [*parts, f"ranks called different ops ({calls})"]
    if not meeting.complete:
        if meeting.unknown:
            parts.append(f"arrivals known: {known} of {counted(members, 'rank')}")
        return parts
    own = meeting.issued_ns[lane.rank]
    error = meeting.error_ns
    doubt = " (clocks not compared)" if error is None else f" ±{timing(error)}" if error else ""
    waited = meeting.last_ns - own
    if meeting.last_rank == lane.rank:
        after = _length(meeting.last_ns - meeting.first_ns)
        parts.append(f"arrived last, {after}{doubt} after the first")
    else:
        parts.append(f"waited {_length(waited)}{doubt} for rank {meeting.last_rank}")
    if meeting.ended_ns is not None:
        moved = meeting.ended_ns - meeting.last_ns
        parts.append(f"then {_length(moved)} until all were done")
        parts.append(_bandwidth(op, moved, meeting))
    return [part for part in parts if part]


def _length(nanoseconds: int) -> str:
    return "no time" if nanoseconds < _FEWEST_NS else timing(nanoseconds)


def _bandwidth(op: wire.Op, moved_ns: int, meeting: Meeting) -> str:
    """Bytes of the op over the transfer time; "" if the clocks are too inexact for it.

    Both as nccl-tests defines them: of the algorithm, and of each rank's link.
    """
    signature, error, members = op.signature, meeting.error_ns, len(meeting.members)
    if signature is None or error is None or moved_ns < max(_FEWEST_NS, 2 * error):
        return ""
    size = op_bytes(signature, members)
    if not size:
        return ""
    speed, factor = size / moved_ns * 1e9, bus_factor(signature.kind, members)
    bus = f", bus {byte_rate(speed * factor)}" if factor is not None else ""
    return f"{byte_rate(speed)}{bus}"
