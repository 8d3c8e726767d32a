"""Entries of torch's Flight Recorder, read from outside, as ops of the wire. Pure.

The recorder keeps kinds, dtypes and shapes of what was issued, when, and whether it is over; not
the reduce op, the root, the splits, nor when it ended (but for NCCL, to a tenth of a second). Kinds
are named as in dumps: those of the c10d state are not comparable with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.unprepared.c10d_state import GLOO, number_of
from frtop_probe.consistency.profiling_names import parse
from frtop_probe.unprepared.model import Backend, FlightRing, RingEntry

_MAX_IDENT: Final = (1 << 63) - 1
"""A pthread handle, as far as it fits where ops are kept."""
OLDEST: Final = -(1 << 40)
"""Sequence of the first entry: all ops of rings come before those of the c10d state."""
_DEVICE: Final = {"gloo": "cpu", "nccl": "cuda"}
_NCCL: Final = "nccl"


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group whose entries may be in a ring, with its state before and after the ring was read.

    Attributes:
        id: The rank's own number of the group.
        ranks: Its members, in order.
    """

    id: int
    ranks: tuple[int, ...]
    before: Backend
    after: Backend


def ops_of(
    ring: FlightRing, groups: Mapping[str, KnownGroup], wall_offset_ns: int
) -> list[wire.Op]:
    """The ops of a ring, oldest first.

    Args:
        ring: as read.
        groups: of this ring's backend, by name.
        wall_offset_ns: wall clock minus monotonic clock of this host.

    Returns:
        Ops; those whose number cannot be compared with other ranks' have group 0.
    """
    comparable = _comparable(ring, groups)
    several = _coalesced(ring.entries) if ring.kind == _NCCL else frozenset()
    signatures: dict[tuple[object, ...], wire.Signature] = {}
    made = []
    for entry in ring.entries:
        group = groups.get(entry.group) if entry.is_p2p or entry.id in comparable else None
        key = (entry.group, entry.op, entry.inputs, entry.outputs, entry.input_types,
               entry.output_types)  # fmt: skip
        signature: wire.Signature | None = signatures.get(key)
        if signature is None:
            signature = signatures[key] = _signature(ring.kind, entry, groups.get(entry.group))
        if not entry.is_p2p and (entry.group, entry.number) in several:
            signature = None  # nothing says which op of the number is which
        made.append(_op(ring.kind, entry, group, signature, wall_offset_ns))
    return made


def entry_of(op: wire.Op) -> tuple[str, int]:
    """Kind of ring and id of the entry that an op is of."""
    number, is_nccl = divmod(op.sequence - OLDEST, 2)
    return (_NCCL if is_nccl else GLOO), number


def _op(
    kind: str,
    entry: RingEntry,
    group: KnownGroup | None,
    signature: wire.Signature | None,
    wall_offset_ns: int,
) -> wire.Op:
    issued_ns = max(1, entry.created_ns - wall_offset_ns)
    # Of NCCL's times only those of retired entries are true: events are used again.
    ended_ns = entry.completed_ns - wall_offset_ns if entry.retired and entry.completed_ns else 0
    timed = ended_ns > issued_ns
    return wire.Op(
        sequence=OLDEST + 2 * entry.id + (kind == _NCCL),  # each ring has ids of its own
        group=group.id if group is not None else 0,
        number=entry.p2p_number if entry.is_p2p else entry.number,
        signature=signature,
        site=wire.Site(*entry.site) if entry.site is not None else None,
        issued_ns=issued_ns,
        done_ns=ended_ns if timed else issued_ns if entry.retired else 0,
        thread=entry.thread_ident if entry.thread_ident <= _MAX_IDENT else 0,
        p2p=entry.is_p2p,
        tracked=entry.retired or kind == GLOO,
        timeout_ms=max(0, entry.timeout_ms),
        timed=timed or not entry.retired,
    )


def _signature(kind: str, entry: RingEntry, group: KnownGroup | None) -> wire.Signature:
    name = parse(entry.op)
    ranks = group.ranks if group is not None else ()
    peer = ranks[name.other] if name.other is not None and name.other < len(ranks) else None
    device = _DEVICE.get(kind, "")
    return wire.Signature(
        name.common_kind,
        peer=peer,
        inputs=_specs(entry.inputs, entry.input_types, device),
        outputs=_specs(entry.outputs, entry.output_types, device),
    )


def _specs(
    shapes: Sequence[tuple[int, ...]] | None, types: Sequence[str] | None, device: str
) -> tuple[wire.TensorSpec, ...] | None:
    """Shapes with dtypes; None for unknown."""
    if shapes is None or types is None or len(types) != len(shapes):
        return None
    return tuple(
        wire.TensorSpec(dtype, shape, 1, device) for shape, dtype in zip(shapes, types, strict=True)
    )


def _coalesced(entries: Iterable[RingEntry]) -> frozenset[tuple[str, int]]:
    """Group and number that several ops share."""
    counts = Counter((one.group, one.number) for one in entries if not one.is_p2p)
    return frozenset(key for key, count in counts.items() if count > 1)


def _comparable(ring: FlightRing, groups: Mapping[str, KnownGroup]) -> frozenset[int]:
    """Ids of the collectives whose numbers are c10d's, and so comparable between ranks.

    They are those of the newest one, and of what came before it without a gap: older ones may be
    of a group that was destroyed, and had the same name.
    """
    found: set[int] = set()
    last: dict[str, int | None] = {}
    for entry in reversed(ring.entries):
        known = groups.get(entry.group)
        if entry.is_p2p or known is None:
            continue
        if entry.group not in last:
            last[entry.group] = entry.number if _is_aligned(ring.kind, entry, known) else None
        elif (before := last[entry.group]) is not None:
            follows = entry.number == before - 1 or (ring.kind == _NCCL and entry.number == before)
            last[entry.group] = entry.number if follows else None
        if last[entry.group] is not None:
            found.add(entry.id)
    return frozenset(found)


def _is_aligned(kind: str, entry: RingEntry, known: KnownGroup) -> bool:
    """Whether the newest entry of a group has the number that c10d gives it.

    While the group stands still, it must be the last one in c10d. While it moves, gloo's
    counter of all ops (`op_id` of an entry) must run ahead of the number as it does in c10d,
    by the messages, which are in no ring. DETAIL's helper has entries of its own.
    """
    before, after = number_of(known.before), number_of(known.after)
    if before is None or after is None or known.before.checked or known.after.checked:
        return False
    if not before <= entry.number <= after:
        return False
    if kind != GLOO or before == after:
        return True
    ahead = {
        one.number - one.collectives
        for one in (known.before, known.after)
        if one.number is not None and one.collectives is not None
    }
    return ahead == {entry.op_id - entry.number}
