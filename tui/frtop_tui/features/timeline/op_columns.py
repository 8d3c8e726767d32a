"""The ops of one rank by field: drawing 64 ranks with 8,192 ops each makes no object per op.

All times are those of the rank's host. C code searches the lists of integers; an `Op` is made
only for the op that is described. The columns come from an agent's answer or from a file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain, compress
from operator import add, attrgetter, le, sub
from typing import Final, Generic, TypeVar

from frtop_probe import wire
from frtop_probe.history_columns import FIELDS, unpack
from frtop_probe.ring.layout import Flag
from frtop_tui.features.timeline.letters import letter_of

UNTRACKED: Final = int(Flag.UNTRACKED)
LATE: Final = int(Flag.LATE)
P2P: Final = int(Flag.P2P)
CALL: Final = 1 << 16
"""frtop's own flag for a call that makes groups: it has no number."""
NO_END: Final = UNTRACKED | wire.UNTIMED
_ALONE: Final = P2P | CALL
_CHUNK: Final = 256
"""This many ops are indexed together, once one of them is looked up."""
_NUMBERS: Final = 1 << 48
"""Larger than any number of an op in a group."""
PENDING_NS: Final = 2**62
"""The end of something that has not ended yet."""
_FIELDS: Final = ("sequence", "group", "number", "signature", "site", "issued", "took", "flags",
           "issuer")  # fmt: skip

Value = TypeVar("Value")


class Intervals:
    """Intervals on one clock, in ns. `issued` is sorted, and says when each began."""

    def __init__(self, issued: Sequence[int], end: Sequence[int]) -> None:
        self.issued, self.end = issued, end

    @cached_property
    def length(self) -> Sequence[int]:
        """The duration of each."""
        return list(map(sub, self.end, self.issued))

    @cached_property
    def reach(self) -> Sequence[int]:
        """The latest end so far: one search finds whether anything lasts at a given time."""
        return list(accumulate(self.end, max))


class Spans(Intervals):
    """Marks of a rank that have a duration, as they are drawn: phases and fetches."""

    def __init__(self, marks: Sequence[wire.Mark]) -> None:
        self.marks = sorted(marks, key=attrgetter("begin_ns"))
        begin = [mark.begin_ns for mark in self.marks]
        super().__init__(begin, [_span_end(mark) for mark in self.marks])


def _span_end(mark: wire.Mark) -> int:
    """When a span ends; a span that still lasts has no end yet."""
    return max(mark.begin_ns, mark.end_ns) if mark.end_ns else PENDING_NS


@dataclass(frozen=True)
class OpColumns:
    """Ops in the order in which they were issued.

    `took` is 0 while an op is pending, and negative if it failed. All ops issued between
    `known_from` and `known_until` are here. `reach` is the latest end of any op up to that one.
    """

    sequence: Sequence[int] = ()
    group: Sequence[int] = ()
    number: Sequence[int] = ()
    signature: Sequence[int] = ()  # from 1, in `signatures`; 0: not known
    site: Sequence[int] = ()
    issued: Sequence[int] = ()
    took: Sequence[int] = ()
    flags: Sequence[int] = ()
    issuer: Sequence[int] = ()
    signatures: tuple[wire.Signature, ...] = ()
    sites: tuple[wire.Site, ...] = ()
    issuers: tuple[wire.Issuer, ...] = ()
    marks: tuple[wire.Mark, ...] = ()
    lost: int = 0
    note: str = ""
    known_from: int = 0
    known_until: int = 0
    end: Sequence[int] = field(default=(), repr=False)
    reach: Sequence[int] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.issued)

    @cached_property
    def letters(self) -> str:
        """A letter for an unknown signature, then one per entry of `signatures`."""
        return letter_of("") + "".join(letter_of(one.kind) for one in self.signatures)

    @cached_property
    def length(self) -> Sequence[int]:
        """How long each op is drawn, in ns."""
        return list(map(sub, self.end, self.issued))

    @cached_property
    def _chunks(self) -> dict[int, Mapping[int, int]]:
        """Positions of the collectives in each chunk, by number; filled as they are looked up."""
        return {}

    def _positions(self, chunk: int) -> Mapping[int, int]:
        known = self._chunks.get(chunk)
        if known is None:
            here = slice(chunk * _CHUNK, (chunk + 1) * _CHUNK)
            # Integers as keys: tuples cost three times as much, and the garbage collector's time.
            keys = map(add, map(_NUMBERS.__mul__, self.group[here]), self.number[here])
            positions = range(here.start, min(here.stop, len(self)))
            flags = self.flags[here]
            if any(one & _ALONE for one in {*flags}):
                own = [not one & _ALONE for one in flags]
                found = dict(zip(compress(keys, own), compress(positions, own), strict=True))
            else:
                found = dict(zip(keys, positions, strict=True))
            known = self._chunks[chunk] = found
        return known

    @cached_property
    def bounds(self) -> Mapping[int, tuple[int, int]]:
        """The first and last number of a group's collectives, by the rank's own id of the group."""
        found: dict[int, tuple[int, int]] = {}
        for group in {*self.group}:
            wanted = map(group.__eq__, self.group)
            flags = compress(zip(self.number, self.flags, strict=True), wanted)
            numbers = [number for number, flag in flags if not flag & _ALONE and number > 0]
            if numbers:
                found[group] = min(numbers), max(numbers)
        return found

    def find(self, group: int, number: int, near_ns: int | None = None) -> int | None:
        """The position of the collective `number` of a group, by the rank's own id of the group.

        Ranks issue a collective at about the same time, so the search begins around `near_ns`.
        """
        key = group * _NUMBERS + number
        first = 0 if near_ns is None else bisect_left(self.issued, near_ns) // _CHUNK
        position = self._positions(first).get(key)
        if position is None and self._has(group, number):
            chunks = sorted(range(-(-len(self) // _CHUNK)), key=lambda chunk: abs(chunk - first))
            found = (self._positions(chunk).get(key) for chunk in chunks[1:])
            position = next((one for one in found if one is not None), None)
        return position if position is not None and self.number[position] == number else None

    def _has(self, group: int, number: int) -> bool:
        first, last = self.bounds.get(group, (1, 0))
        return first <= number <= last

    def is_numbered(self, position: int) -> bool:
        """Whether an op shares its number with other ranks; messages and calls do not."""
        return self.number[position] > 0 and not self.flags[position] & _ALONE

    def letter(self, position: int) -> str:
        """The letter of an op in its lane."""
        return self.letters[self.signature[position]]

    def kind(self, position: int) -> str:
        """What was called; "" if that is not known."""
        signature = self.signature[position]
        return self.signatures[signature - 1].kind if signature else ""

    def pending(self, position: int) -> bool:
        return self.end[position] == PENDING_NS

    def at_most(self, position: int) -> bool:
        """Whether an op may have ended before its recorded end."""
        return bool(self.flags[position] & LATE)

    def end_known(self, position: int) -> bool:
        """Whether it is known when an op ended, or that it is still pending."""
        flags, took = self.flags[position], self.took[position]
        return self.pending(position) or not (flags & NO_END or not took)

    def op(self, position: int) -> wire.Op:
        """One op as the rest of frtop reads it."""
        issued, took, flags = self.issued[position], self.took[position], self.flags[position]
        done = 0 if not took else issued + took if took > 0 else took - issued
        signature, site = self.signature[position], self.site[position]
        return wire.Op(
            self.sequence[position],
            self.group[position],
            self.number[position],
            self.signatures[signature - 1] if signature else None,
            self.sites[site - 1] if site else None,
            issued,
            done,
            sync=bool(flags & Flag.SYNC),
            p2p=bool(flags & P2P),
            pseudo=bool(flags & CALL),
            tracked=not flags & UNTRACKED,
            timed=not flags & wire.UNTIMED,
            late=bool(flags & LATE),
            on_device=bool(flags & Flag.DEVICE),
            issuer=self.issuer_at(position),
        )

    def issuer_at(self, position: int) -> wire.Issuer | None:
        """What issued an op; None if that is not recorded."""
        issuer = self.issuer[position]
        return self.issuers[issuer - 1] if issuer else None

    def at(self, positions: Sequence[int]) -> Intervals:
        """Some of the ops, to draw in a lane of their own."""
        issued = [self.issued[position] for position in positions]
        return Intervals(issued, [self.end[position] for position in positions])

    def without_end(self, positions: Iterable[int]) -> OpColumns:
        """The same ops; it is not known when those at `positions` ended."""
        positions = tuple(positions)
        if not positions:
            return self
        end, flags = list(self.end), list(self.flags)
        for position in positions:
            end[position], flags[position] = self.issued[position], flags[position] | UNTRACKED
        return replace(self, end=end, flags=flags, reach=list(accumulate(end, max)))

    def known_to(self, until_ns: int) -> OpColumns:
        """The same ops, known until a later time: nothing was issued since."""
        return replace(self, known_until=max(self.known_until, until_ns))


def columns_of(
    history: wire.History, asked: int = 0, known_until: int = 0, open_ops: Iterable[int] = ()
) -> OpColumns:
    """The ops of a history.

    `asked` is how many of the newest ops were requested, 0: all. The history has every op that was
    issued by `known_until` (host's clock). `open_ops` are pending.

    Raises:
        ValueError: its columns do not fit together.
    """
    columns = unpack(history.columns) if history.columns is not None else ((),) * len(FIELDS)
    sequence, group, number, signature, site, issued, took, _, flags, pseudo, _, issuer, _ = columns
    signature = _within(signature, len(history.signatures))
    site = _within(site, len(history.sites))
    issuer = _within(issuer, len(history.issuers))
    if any(pseudo):  # calls that make groups have no number
        flags = [one | CALL if call else one for one, call in zip(flags, pseudo, strict=True)]
    fields = _in_order([sequence, group, number, signature, site, issued, took, flags, issuer])
    older = bool(asked) and len(fields[0]) * 2 >= asked
    return _made(
        fields,
        open_ops,
        OpColumns(
            signatures=history.signatures,
            sites=history.sites,
            issuers=history.issuers,
            marks=history.marks,
            lost=history.lost,
            note=history.note,
            known_from=fields[5][0] if fields[5] and (older or fields[0][0] > 1) else 0,
            known_until=known_until,
        ),
    )


def columns_of_ops(
    ops: Iterable[wire.Op],
    marks: tuple[wire.Mark, ...] = (),
    *,
    lost: int = 0,
    note: str = "",
    known_until: int = 0,
    open_ops: Iterable[int] = (),
    all_open: bool = True,
) -> OpColumns:
    """The columns of ops from a file or a snapshot; equal signatures and sites are shared.

    Without `all_open`, ops without an end are pending only if they are among `open_ops`.
    """
    waited = frozenset(open_ops)
    ops = tuple(ops)
    signatures, sites, issuers = (
        _Table[wire.Signature](), _Table[wire.Site](), _Table[wire.Issuer]()
    )  # fmt: skip
    fields = _in_order([
        [op.sequence for op in ops],
        [op.group for op in ops],
        [op.number for op in ops],
        [signatures.index(op.signature) for op in ops],
        [sites.index(op.site) for op in ops],
        [op.issued_ns for op in ops],
        list(map(_took, ops)),
        [_flags(op, unseen=not all_open and op.sequence not in waited) for op in ops],
        [issuers.index(op.issuer) for op in ops],
    ])  # fmt: skip
    known_from = fields[5][0] if ops and fields[0][0] > 1 else 0
    like = OpColumns(
        signatures=signatures.values,
        sites=sites.values,
        issuers=issuers.values,
        marks=marks,
        lost=lost,
        note=note,
        known_from=known_from,
        known_until=known_until,
    )
    return _made(fields, waited, like)


def extended(old: OpColumns, new: OpColumns, most: int) -> OpColumns | None:
    """`old` up to where `new` begins, then `new`: at most `most` ops.

    Returns None if they do not overlap: ops between them may be missing.
    """
    if not len(old) or not len(new):
        return new
    begin = min(new.sequence)
    if begin > max(old.sequence) + 1:
        return None
    keep = [sequence < begin for sequence in old.sequence]
    first = max(0, sum(keep) + len(new) - most)
    signatures = _Table(old.signatures)
    sites, issuers = _Table(old.sites), _Table(old.issuers)
    translated = {
        "signature": [0, *map(signatures.index, new.signatures)],
        "site": [0, *map(sites.index, new.sites)],
        "issuer": [0, *map(issuers.index, new.issuers)],
    }
    joined: list[Sequence[int]] = []
    for name in _FIELDS:
        fresh: Iterable[int] = getattr(new, name)
        if name in translated:
            fresh = map(translated[name].__getitem__, fresh)
        joined.append(list(chain(compress(getattr(old, name), keep), fresh))[first:])
    open_ops = compress(new.sequence, map(PENDING_NS.__eq__, new.end))
    known_from = joined[5][0] if first else old.known_from
    marks_from = new.marks[0].begin_ns if new.marks else 0
    earlier = tuple(m for m in old.marks if not marks_from or m.begin_ns < marks_from)
    like = OpColumns(
        signatures=signatures.values,
        sites=sites.values,
        issuers=issuers.values,
        marks=(earlier + new.marks)[-most:],
        lost=max(old.lost, new.lost),
        note=new.note,
        known_from=known_from,
        known_until=max(old.known_until, new.known_until),
    )
    return _made(_in_order(joined), tuple(open_ops), like)


def _within(indices: Sequence[int], most: int) -> Sequence[int]:
    """Indices into a table, from 1; 0 for those outside of it."""
    if {*indices} <= {*range(most + 1)}:
        return indices
    return [one if 0 < one <= most else 0 for one in indices]


class _Table(Generic[Value]):
    """Numbers values from 1; equal objects are looked up by identity first.

    The initial values keep their numbers: an agent may send equal ones.
    """

    def __init__(self, values: Iterable[Value] = ()) -> None:
        self._values = list(values)
        self._indices = {value: index for index, value in enumerate(self._values, 1)}
        self._by_id: dict[int, int] = {}

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(self._values)

    def index(self, value: Value | None) -> int:
        if value is None:
            return 0
        known = self._by_id.get(id(value))
        if known is None:
            known = self._indices.setdefault(value, len(self._values) + 1)
            if known > len(self._values):
                self._values.append(value)
            self._by_id[id(value)] = known
        return known


def _in_order(fields: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """The rows by time of issue: threads may have overtaken each other."""
    issued = fields[5]
    if all(map(le, issued, issued[1:])):
        return fields
    order = sorted(range(len(issued)), key=issued.__getitem__)
    return [[values[index] for index in order] for values in fields]


def _made(fields: Sequence[Sequence[int]], open_ops: Iterable[int], like: OpColumns) -> OpColumns:
    sequence, issued, took, flags = fields[0], fields[5], fields[6], fields[7]
    if issued and min(took) > 0 and not any(flag & NO_END for flag in {*flags}):
        end = list(map(add, issued, took))
    else:
        waited = frozenset(open_ops)
        rows = zip(sequence, issued, took, flags, strict=True)
        end = [_end(begin, lasts, flag, waited, number) for number, begin, lasts, flag in rows]
    values = dict(zip(_FIELDS, fields, strict=True))
    return OpColumns(
        **values,
        signatures=like.signatures,
        sites=like.sites,
        issuers=like.issuers,
        marks=like.marks,
        lost=like.lost,
        note=like.note,
        known_from=like.known_from,
        known_until=like.known_until,
        end=end,
        reach=list(accumulate(end, max)),
    )


def _end(issued: int, took: int, flags: int, waited: Container[int], sequence: int) -> int:
    """When an op ends; if nobody knows, it is drawn as ending at once."""
    if took:
        return issued if flags & NO_END else issued + abs(took)
    return issued if flags & UNTRACKED and sequence not in waited else PENDING_NS


def _took(op: wire.Op) -> int:
    if not op.done_ns:
        return 0
    if op.done_ns > 0:
        return max(1, op.done_ns - op.issued_ns)
    return min(-1, op.issued_ns + op.done_ns)


def _flags(op: wire.Op, *, unseen: bool) -> int:
    return (
        op.sync * Flag.SYNC.value
        | op.p2p * P2P
        | op.pseudo * CALL
        | (unseen or not op.tracked) * UNTRACKED
        | op.late * LATE
        | op.on_device * Flag.DEVICE.value
        | (not op.timed) * wire.UNTIMED
    )
