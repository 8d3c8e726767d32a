"""Queues side by side as lines: the op on the left, then what each rank has of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.features.timeline.alignment import MISSING, Alignment, Differing
from frtop_tui.features.timeline.lane import Lane
from frtop_tui.job.issuer_words import issuer_text
from frtop_tui.job.naming import folded
from frtop_tui.job.stack_frames import site_name
from frtop_tui.job.units import duration, timing
from frtop_tui.text.rank_words import format_tensors, op_group, op_kind, op_number
from frtop_tui.widgets.spans import Line, Span, fit, join, plain

_NARROWEST: Final = 8
_WIDEST: Final = 24
_OP: Final = 48
"""Width in which the op's name and its tensors fit."""
_LEAST: Final = 30
"""Width in which its name fits."""
_ROOMY: Final = 16
"""Usual width of a rank's column."""
_WORDS: Final = 13
"""From this width on, a rank's column has room for words."""
_FRACTION: Final = re.compile(r"\.\d+| ")
_SHORT: Final = {"not issued": "--", "not its group": "", "not recorded": "·", "not read": "·"}


def column_width(room: int, lanes: int) -> int:
    """Width of one rank's column: what the op's name leaves."""
    beside = (room - _OP) // max(1, lanes)
    if beside < _ROOMY:
        beside = min(_ROOMY, (room - _LEAST) // max(1, lanes))
    return max(_NARROWEST, min(_WIDEST, beside))


def title_line(lanes: Sequence[Lane], room: int, chosen: int) -> Line:
    """The ranks above their columns."""
    width = column_width(room, len(lanes))
    spans: list[Span] = [(fit("op", room - width * len(lanes)), "dim")]
    for index, lane in enumerate(lanes):
        name = f"rank {lane.rank}" if width >= _NARROWEST else str(lane.rank)
        spans.append((fit(name, width - 1, right=True), "key" if index == chosen else "strong"))
        spans.append((" ", ""))
    return tuple(spans)


def row_line(
    alignment: Alignment, row: int, room: int, now_ns: Sequence[int], first: int | None
) -> Line:
    """One op of all ranks.

    `now_ns`: until when each lane's pending ops are known to last, by its host's clock; `first` is
    the row of the first difference, which is marked.
    """
    lanes, ops = alignment.lanes, alignment.ops_at(row)
    width = column_width(room, len(lanes))
    left = room - width * len(lanes)
    differing = alignment.differing(row)
    is_error = differing is not None and not differing.legal
    index, op = _usual(ops)
    mark = "! " if row == first else "x " if is_error else "  "
    name = op_name(lanes[index], op)
    if differing is not None:
        name = f"{name}  {'other' if differing.legal else 'differs:'} {', '.join(differing.fields)}"
    elif op.signature is not None:
        name = f"{name}  {format_tensors(op.signature.inputs or op.signature.outputs)}"
    spans: list[Span] = [(fit(mark + name, left), "bad" if is_error else "")]
    for lane_index, column in enumerate(alignment.cells):
        lane, until = lanes[lane_index], now_ns[lane_index]
        text, tone = _cell(lane, column[row], until, differing, width)
        if alignment.keys[row][0] is None and column[row] < 0:
            text = ""  # other ranks have no such op, whether or not they are members of the group
        spans += [(fit(text, width - 1, right=True), tone), (" ", "")]
    return tuple(spans)


def _usual(ops: Mapping[int, wire.Op]) -> tuple[int, wire.Op]:
    """The first op of the kind that most ranks have in a row: the others are the odd ones."""
    kinds = Counter(map(op_kind, ops.values()))
    return max(ops.items(), key=lambda item: (kinds[op_kind(item[1])], -item[0]))


def op_name(lane: Lane, op: wire.Op) -> str:
    """`#8812 dp:0 all_reduce`."""
    return " ".join(filter(None, (op_number(op), op_group(lane, op), op_kind(op))))


def difference_lines(alignment: Alignment, row: int) -> list[Line]:
    """What differs in a row, field by field, with the ranks that have each value."""
    differing = alignment.differing(row)
    ops = alignment.ops_at(row)
    index, op = _usual(ops)
    named = op_name(alignment.lanes[index], op)
    if differing is None:
        alike = "the same on all of them" if len(ops) > 1 else "of this rank only"
        issuer, line = plain(issuer_text(op.issuer)), plain(site_name(op.site), "dim")
        return [join((plain(named, "strong"), plain(alike), issuer, line))]
    on_its_way = differing.legal and "missing" in differing.fields
    note = "may be on its way" if on_its_way else "no error" if differing.legal else ""
    lines = [join((plain(named, "strong"), plain(note)))]
    for name in differing.fields:
        parts = [f"{folded(ranks)} {value}" for value, ranks in _sides(alignment, row, name)]
        lines.append(((f"{name}: ", "" if differing.legal else "bad"), ("; ".join(parts), "")))
    return lines


def _sides(alignment: Alignment, row: int, name: str) -> list[tuple[str, list[int]]]:
    """The values of a field, and the ranks that have each."""
    found: dict[str, list[int]] = {}
    ops = alignment.ops_at(row)
    for index, (lane, column) in enumerate(zip(alignment.lanes, alignment.cells, strict=True)):
        position = column[row]
        if position >= 0:
            value = _value(ops[index], name, position)
        elif name == "missing" and MISSING[position] == "not issued":
            value = f"has not issued it, {duration(alignment.missing_s(row))} after the first"
        else:
            continue
        found.setdefault(value, []).append(lane.rank)
    return list(found.items())


def _value(op: wire.Op, name: str, position: int) -> str:
    signature = op.signature if op.signature is not None else wire.Signature("unknown op")
    tensors = format_tensors(signature.inputs or signature.outputs) or "not known"
    values: Mapping[str, str] = {
        "kind": op_kind(op),
        "reduce op": signature.reduce or "not known",
        "root": f"root {signature.root}",
        "dtype": tensors,
        "size": tensors,
        "line": site_name(op.site) or "not known",
        "missing": "issued it",
        "order": f"issued it as op {position + 1:,} of its history",
    }
    return values.get(name, "")


def _cell(lane: Lane, position: int, now_ns: int, differing: Differing | None, width: int) -> Span:
    """What a rank has of an op: how long it took, or what differs."""
    if position < 0:
        words = MISSING[position]
        tone = "bad" if words == "not issued" else "dim"
        return (words if width > _WORDS else _SHORT[words]), tone
    if differing is not None and not differing.legal and width > _WORDS:
        name = next((one for one in differing.fields if one not in ("missing", "order")), None)
        if name is not None:
            return _value(lane.ops.op(position), name, position), "bad"
    ops = lane.ops
    if ops.pending(position):
        lasts = timing(lane.pending_ns(position, now_ns))
        mark = "+" if lane.ended_ns is None else "†"
        spelt = f"pending {lasts}" + f" {mark}" * (mark == "†")
        return (spelt if width > _WORDS + 4 else f"{lasts.replace(' ', '')}{mark}"), "warn"
    if not ops.end_known(position):
        return "issued", "dim"
    took = timing(abs(ops.took[position]))
    if ops.took[position] < 0:
        return "failed", "bad"
    took = "<=" * (lane.at_most or ops.at_most(position)) + took
    return took if len(took) < width else _FRACTION.sub("", took), "dim"
