"""Makes `OpColumns` of the ops that an agent sent or a file has, and extends them by newer ops."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import accumulate, chain, compress, repeat
from operator import add, le
from typing import Final, Generic, TypeVar

from msgspec.structs import astuple

from frtop_probe import wire
from frtop_probe.history_columns import FIELDS, unpack
from frtop_probe.ring.layout import Flag
from frtop_tui.features.timeline.intervals import PENDING_NS
from frtop_tui.features.timeline.op_columns import CALL, LATE, NO_END, P2P, UNTRACKED, OpColumns

_FIELDS: Final = ("sequence", "group", "number", "signature", "site", "issued", "took", "flags",
           "issuer")  # fmt: skip

Value = TypeVar("Value")


def columns_of(
    history: wire.History, asked: int = 0, known_until: int = 0, open_ops: Iterable[int] = ()
) -> OpColumns:
    """The ops of a history.

    Args:
        history: as an agent sent it.
        asked: how many of the newest ops were asked for; 0: all.
        known_until: host's clock: the history has every op that was issued by then.
        open_ops: sequences of ops that are pending though nobody sees their ends.

    Raises:
        ValueError: its columns do not fit together.
    """
    if history.columns is not None:
        rows: Iterable[Sequence[int]] = unpack(history.columns)
    else:
        rows = (
            zip(*map(astuple, history.rows), strict=True)
            if history.rows
            else repeat((), len(FIELDS))
        )
    sequence, group, number, signature, site, issued, took, _, flags, pseudo, _, issuer, _ = rows
    signature = _within(signature, len(history.signatures))
    site = _within(site, len(history.sites))
    issuer = _within(issuer, len(history.issuers))
    if any(pseudo):  # calls that make groups have no number to compare
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
    """The same of ops that a file or a snapshot has; equal signatures and sites are shared.

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

    Returns None where they do not overlap: ops between them may be missing.
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
    """Indices into a table from 1; 0 of what is outside of it."""
    if {*indices} <= {*range(most + 1)}:
        return indices
    return [one if 0 < one <= most else 0 for one in indices]


class _Table(Generic[Value]):
    """Numbers values from 1; equal objects are looked up by identity first.

    Numbers of the values it starts with stay as they are: an agent may send equal ones.
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
    """The rows by the time at which they were issued: threads may have overtaken each other."""
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
    """When an op is over: at once, for drawing, where nobody knows when."""
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
