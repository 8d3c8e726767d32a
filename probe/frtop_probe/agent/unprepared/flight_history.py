"""Keeps what torch's Flight Recorder knew about one unprepared rank at the last read.

`UnpreparedWatch` reads a ring when somebody asks, and hands it over. The Flight Recorder has kinds,
dtypes and shapes of ops, when they were issued, and whether they are over. It has no reduce op,
root or splits, and no end times, except for NCCL, with a precision of 0.1 s. Its names of kinds
differ from those in the c10d state, so the two cannot be compared.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from frtop_probe import wire
from frtop_probe.agent.checksum_blocks import BlockBuilder, encode_blocks
from frtop_probe.agent.unprepared.groups import GLOO, counted, number_of
from frtop_probe.consistency.checksums import signature_digest, weight
from frtop_probe.consistency.profiling_names import parse
from frtop_probe.consistency.signatures import RULE_OF_SIZES
from frtop_probe.history_columns import pack_rows
from frtop_probe.ring.layout import Flag
from frtop_probe.unprepared.flight_ring import NO_RING
from frtop_probe.unprepared.flight_settings import OFF, SIZE_NAMES, SWITCH_ON
from frtop_probe.unprepared.model import Backend, FlightRing, RingEntry
from frtop_probe.unprepared.worker import Look

MAX_OPS: Final = 4096
"""Most ops per rank. The ring has 2,000 by default."""
_MOST_UNNUMBERED: Final = 512
"""Most ops read again because their numbers could not be compared; some never can."""
MISSING: Final = "reduce ops, roots and durations are not recorded; ages count from the call"
MISSING_OF_GLOO: Final = f"messages, {MISSING}"

GroupIds = Mapping[tuple[str, str], int]
"""The rank's own numbers for its groups, by name and kind of backend."""
_MAX_IDENT: Final = (1 << 63) - 1
"""The bits of a pthread handle that fit into the op tables."""
OLDEST: Final = -(1 << 40)
"""Sequence number of the first entry: ops of rings come before ops of the c10d state."""
_DEVICE: Final = {"gloo": "cpu", "nccl": "cuda"}
_NCCL: Final = "nccl"
Value = TypeVar("Value")
_P2P: Final = int(Flag.P2P)
_UNTRACKED: Final = int(Flag.UNTRACKED)
_DROPPED: Final = 1024
"""If more signatures or lines than this are unused, the tables are rebuilt."""


class FlightHistory:
    """The ops of the last read, and sums over the new ops."""

    def __init__(self) -> None:
        self._ops = OpTable(MAX_OPS)
        self.note = ""
        self.lost = 0
        self.read_ns = 0
        """When the ring was last read, on the monotonic clock; 0 if never."""
        self._builders: dict[int, BlockBuilder] = {}
        self._recorded: dict[str, int] = {}

    @property
    def ops(self) -> tuple[wire.Op, ...]:
        return self._ops.ops()

    def take(
        self, look: Look, ids: GroupIds, at_ns: int, wall_offset_ns: int
    ) -> tuple[wire.BlockSums, ...]:
        """Adds a look, which has c10d's state before and after the rings.

        Returns the sums over its new ops. `wall_offset_ns` is wall clock minus monotonic clock.
        """
        self.read_ns = at_ns
        rings = [ring for ring in look.rings if ring.recorded and not ring.reason]
        if not rings:
            self.note = _why_none(look)
            return ()  # an earlier read is still true
        known = _known_groups(look, ids)
        ops: list[wire.Op] = []
        for ring in rings:
            ops += ops_of(ring, known.get(ring.kind, {}), wall_offset_ns)
        self._ops.merge(ops)
        self.lost = sum(ring.torn for ring in rings)
        self._recorded = {ring.kind: ring.recorded for ring in look.rings}
        self.note = "; ".join(f"{_described(ring, len(self._ops))}" for ring in rings)
        backends = {one.id: kind for kind, groups in known.items() for one in groups.values()}
        return tuple(self._sums(backends))

    def since(self) -> dict[str, int]:
        """Returns the first entry that is new, was not over, or had no number, by kind of ring."""
        since = dict(self._recorded)
        for back, op in enumerate(self._ops.newest_first()):
            unnumbered = not op.group and not op.p2p and back < _MOST_UNNUMBERED
            if not op.done_ns or unnumbered:
                kind, number = entry_of(op)
                since[kind] = number
        return since

    def recent(self, limit: int) -> tuple[tuple[wire.Op, ...], int]:
        """The newest `limit` ops, oldest first, and how many ops in between could not be read."""
        return (self._ops.ops(-limit) if limit else ()), self.lost

    def history(self, limit: int = 0) -> wire.History:
        """The newest `limit` ops (0: all)."""
        return self._ops.history(self.lost, self.note, limit=limit)

    def excerpt(self, group: int, first: int, last: int) -> wire.History:
        """The collectives of one group numbered `first` to `last`."""
        return self._ops.history(
            0, self.note, only=lambda of, number: of == group and first <= number <= last
        )

    def recent_sums(self) -> tuple[wire.BlockSums, ...]:
        """The most recent sums, for the full state."""
        return tuple(
            one
            for group, builder in self._builders.items()
            for one in encode_blocks(group, builder.recent, RULE_OF_SIZES)
        )

    def _sums(self, backends: Mapping[int, str]) -> Iterator[wire.BlockSums]:
        """Yields sums over the ops that no earlier read had, by group."""
        for group in self._builders.keys() - backends.keys():
            del self._builders[group]
        digests: dict[int, int | None] = {}
        newest = {group: number for group, number, _ in self._ops.numbers()}
        for group, number, signature in self._ops.numbers():
            if group not in backends:
                continue
            builder = self._builders.get(group)
            if builder is None or newest[group] < builder.end - 1:  # or it was recreated
                builder = self._builders[group] = BlockBuilder(group, number)
            if number < builder.end:
                continue
            if number > builder.end:
                builder.skip(number - 1)  # overwritten since the last read
            if signature is not None and id(signature) not in digests:
                digests[id(signature)] = signature_digest(signature, backends[group], RULE_OF_SIZES)
            digest = digests[id(signature)] if signature is not None else None
            if digest is None:
                builder.skip(number)
            else:
                builder.add(number, digest * weight(number), 0)
        for group, builder in self._builders.items():
            yield from encode_blocks(group, builder.cut(), RULE_OF_SIZES)


def _known_groups(look: Look, ids: GroupIds) -> dict[str, dict[str, KnownGroup]]:
    """The groups of both states, by kind of ring, then by name."""
    if look.c10d is None or look.after is None:
        return {}
    later = {(group.name, group.ranks, one.kind): one for group, one in counted(look.after)}
    found: dict[str, dict[str, KnownGroup]] = {}
    for group, backend in counted(look.c10d):
        after = later.get((group.name, group.ranks, backend.kind))
        number = ids.get((group.name, backend.kind))
        if after is not None and number is not None and group.ranks is not None:
            one = KnownGroup(number, group.ranks, backend, after)
            found.setdefault(backend.kind, {})[group.name] = one
    return found


def _described(ring: FlightRing, known: int) -> str:
    last = f"the last {min(known, ring.recorded):,} of {ring.recorded:,} ops of {ring.kind}"
    return f"Flight Recorder: {last}; {MISSING_OF_GLOO if ring.kind == 'gloo' else MISSING}"


def _why_none(look: Look) -> str:
    """Returns why there is no history, and how to get one next time."""
    reasons = [look.reason] if look.reason else [ring.reason for ring in look.rings if ring.reason]
    if not reasons:
        return "Flight Recorder: no op yet"
    named = [name for name in SIZE_NAMES if name in look.environment]
    off = OFF in reasons
    setting = f" ({named[0]}={look.environment[named[0]][:20]})" if off and named else ""
    step = f"; {SWITCH_ON}" if off or reasons == [NO_RING] else ""
    return f"not recorded: {'; '.join(dict.fromkeys(reasons))}{setting}{step}"


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group whose entries may be in a ring, with its state before and after the ring was read.

    Attributes:
        id: The rank's own number for the group.
        ranks: Its members, in order.
    """

    id: int
    ranks: tuple[int, ...]
    before: Backend
    after: Backend


def ops_of(
    ring: FlightRing, groups: Mapping[str, KnownGroup], wall_offset_ns: int
) -> list[wire.Op]:
    """The ops of a ring, oldest first; `wall_offset_ns` is wall clock minus monotonic clock.

    Group 0 means that the number cannot be compared with those of other ranks.
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
            signature = None  # nothing says which op is which
        made.append(_op(ring.kind, entry, group, signature, wall_offset_ns))
    return made


def entry_of(op: wire.Op) -> tuple[str, int]:
    """Returns the kind of ring and the id of an op's entry."""
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
    # Only times of retired NCCL entries are right, because NCCL reuses events.
    ended_ns = entry.completed_ns - wall_offset_ns if entry.retired and entry.completed_ns else 0
    timed = ended_ns > issued_ns
    return wire.Op(
        sequence=OLDEST + 2 * entry.id + (kind == _NCCL),  # each ring has its own ids
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
    """Shapes with dtypes; None if unknown."""
    if shapes is None or types is None or len(types) != len(shapes):
        return None
    return tuple(
        wire.TensorSpec(dtype, shape, 1, device) for shape, dtype in zip(shapes, types, strict=True)
    )


def _coalesced(entries: Iterable[RingEntry]) -> frozenset[tuple[str, int]]:
    """Returns groups and numbers that several ops share."""
    counts = Counter((one.group, one.number) for one in entries if not one.is_p2p)
    return frozenset(key for key, count in counts.items() if count > 1)


def _comparable(ring: FlightRing, groups: Mapping[str, KnownGroup]) -> frozenset[int]:
    """Returns ids of the collectives numbered as in c10d, so comparable between ranks.

    That holds for the newest collective of a group, and back from it up to the first gap. Older
    ones may belong to a destroyed group of the same name.
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
    """Returns whether the newest entry of a group has its number in c10d.

    If the group stands still, the entry must be c10d's last. While the group moves, gloo's
    counter of all ops (`op_id` of an entry) must be ahead of the number by as much as in c10d: by
    the messages, which no ring has. DETAIL's helper has its own entries.
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


class OpTable:
    """Ops of Flight Recorder rings, ordered by sequence."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._signatures: _Values[wire.Signature] = _Values()
        self._sites: _Values[wire.Site] = _Values()
        self._sequence, self._number, self._issued, self._done, self._timeout, self._thread = (
            array("q") for _ in range(6)
        )
        self._group, self._signature, self._site = (array("i") for _ in range(3))
        self._flags = array("H")

    def __len__(self) -> int:
        return len(self._sequence)

    def merge(self, ops: Iterable[wire.Op]) -> None:
        """Adds ops; replaces ops that were read again."""
        fresh = {op.sequence: op for op in ops}
        if not fresh:
            return
        if self._sequence and max(fresh) < self._sequence[-1]:  # the ring was reset
            self._cut(0)
        begin = bisect_left(self._sequence, min(fresh))
        known = {op.sequence: op for op in self.ops(begin)}
        self._cut(begin)
        for _, op in sorted((known | fresh).items()):
            self._append(op)
        for column in self._columns:
            del column[: -self._most]
        if max(len(self._signatures), len(self._sites)) > self._most + _DROPPED:
            self._make_anew()

    def ops(self, begin: int = 0, end: int | None = None) -> tuple[wire.Op, ...]:
        """The ops from place `begin` to `end`; negative places count from the newest."""
        return tuple(map(self._op, range(len(self))[begin:end]))

    def newest_first(self) -> Iterator[wire.Op]:
        return map(self._op, reversed(range(len(self))))

    def numbers(self) -> Iterator[tuple[int, int, wire.Signature | None]]:
        """Group, number and signature of the collectives, oldest first."""
        at = self._signatures.at
        for group, number, place, flags in zip(
            self._group, self._number, self._signature, self._flags, strict=True
        ):
            if not flags & _P2P:
                yield group, number, at(place)

    def history(
        self,
        lost: int,
        note: str,
        *,
        limit: int = 0,
        only: Callable[[int, int], bool] | None = None,
    ) -> wire.History:
        """The newest `limit` ops (0: all), or the collectives that `only` accepts by their numbers.

        `lost` is how many ops in between could not be read, `note` where they come from.
        """
        places: Iterable[int] = range(len(self))[-limit:]
        if only is not None:
            places = [
                place for place in places
                if not self._flags[place] & _P2P and only(self._group[place], self._number[place])
            ]  # fmt: skip
        signatures: _Values[wire.Signature] = _Values()
        sites: _Values[wire.Site] = _Values()
        places = list(places)
        nothing = [0] * len(places)
        columns = pack_rows((
            [self._sequence[place] for place in places],
            [self._group[place] for place in places],
            [self._number[place] for place in places],
            [signatures.place_of(self._signatures.at(self._signature[place])) for place in places],
            [sites.place_of(self._sites.at(self._site[place])) for place in places],
            [self._issued[place] for place in places],
            [_took_ns(self._issued[place], self._done[place]) for place in places],
            nothing,
            [self._flags[place] for place in places],
            nothing,
            [self._timeout[place] for place in places],
            nothing,
            nothing,
        ))  # fmt: skip
        return wire.History(tuple(signatures), tuple(sites), columns, lost, note)

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return (self._sequence, self._number, self._issued, self._done, self._timeout,
                self._thread, self._group, self._signature, self._site, self._flags)  # fmt: skip

    def _append(self, op: wire.Op) -> None:
        self._sequence.append(op.sequence)
        self._number.append(op.number)
        self._issued.append(op.issued_ns)
        self._done.append(op.done_ns)
        self._timeout.append(op.timeout_ms)
        self._thread.append(op.thread)
        self._group.append(op.group)
        self._signature.append(self._signatures.place_of(op.signature))
        self._site.append(self._sites.place_of(op.site))
        self._flags.append(
            (_P2P if op.p2p else 0)
            | (0 if op.tracked else _UNTRACKED)
            | (0 if op.timed else wire.UNTIMED)
        )

    def _op(self, place: int) -> wire.Op:
        flags = self._flags[place]
        return wire.Op(
            self._sequence[place],
            self._group[place],
            self._number[place],
            self._signatures.at(self._signature[place]),
            self._sites.at(self._site[place]),
            self._issued[place],
            self._done[place],
            self._thread[place],
            p2p=bool(flags & _P2P),
            tracked=not flags & _UNTRACKED,
            timeout_ms=self._timeout[place],
            timed=not flags & wire.UNTIMED,
        )

    def _cut(self, begin: int) -> None:
        for column in self._columns:
            del column[begin:]

    def _make_anew(self) -> None:
        """Drops unused signatures and lines."""
        ops = self.ops()
        self._cut(0)
        self._signatures, self._sites = _Values(), _Values()
        for op in ops:
            self._append(op)


class _Values(Generic[Value]):
    """Values by place, from 1; 0 means none."""

    def __init__(self) -> None:
        self._places: dict[Value, int] = {}
        self._values: list[Value | None] = [None]

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._places)

    def place_of(self, value: Value | None) -> int:
        """Returns the place of a value, adding it if new."""
        if value is None:
            return 0
        place = self._places.setdefault(value, len(self._values))
        if place == len(self._values):
            self._values.append(value)
        return place

    def at(self, place: int) -> Value | None:
        return self._values[place]


def _took_ns(issued_ns: int, done_ns: int) -> int:
    return max(1, done_ns - issued_ns) if done_ns else 0
