"""Entries of dumps as ops of ours: groups, numbers, signatures, call sites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.export.flightrecorder import entries as told
from frtop_tui.export.flightrecorder.entries import Dump, Entry
from frtop_tui.job.frames import is_yours
from frtop_tui.job.naming import group_label, listed

_DEFAULT: Final = "default_pg"
_GLOO: Final = "gloo"
_KINDS: Final = {
    "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "all_to_allv": "all_to_all",
    "allreduce": "all_reduce",
    "all_reduce_barrier": "barrier",
}
"""What backends call in their own way."""
TOGETHER: Final = ("all_reduce", "all_gather", "reduce_scatter", "barrier")
_MOST_BACKENDS: Final = 8
_MOST_SIZES: Final = 64
_MOST_AXES: Final = 16
_MOST_FRAMES: Final = 64
_MOST_CACHED: Final = 65_536

_Key = tuple[str, str, str]  # name, folded members, backend


@dataclass(frozen=True, slots=True)
class Part:
    """What one dump of a rank tells."""

    groups: tuple[wire.Group, ...]
    fronts: tuple[wire.GroupProgress, ...]
    pending: tuple[wire.Op, ...]
    recent: tuple[wire.Op, ...]
    latest_ns: int
    completed: Mapping[int, int]  # by group: an op that cannot be done before all had come


class Ops:
    """Turns the entries of one job's dumps into ops; what is alike is made once."""

    def __init__(self, world: int, dumps: Iterable[tuple[int, Dump]]) -> None:
        self._world = tuple(range(world))
        self._seen: dict[str, set[int]] = {}  # ranks with entries, by name of a group
        self._mixed: set[str] = set()
        self._backends: dict[str, set[str]] = {}
        self._unknown: set[str] = set()
        self._exact = True
        for rank, dump in dumps:
            self._learn(rank, dump)
        self._groups: dict[_Key, wire.Group] = {}
        self._folded: dict[tuple[int, ...], str] = {}
        self._members: dict[int, tuple[int, ...]] = {}
        self._signatures: dict[tuple[Any, ...], wire.Signature] = {}
        self._sites: dict[tuple[str, int, str], wire.Site] = {}

    def of(self, dump: Dump) -> Part:
        """Groups, fronts and ops of one dump."""
        groups = {name: self._group(dump, name) for name in self._names(dump)}
        mine = {number: groups[name] for number, name in dump.names.items() if name in groups}
        several = _coalesced(dump.kept)
        waiting = set(map(id, dump.pending))
        recent = tuple([self._op(entry, mine, several) for entry in dump.kept])
        told_of = list(zip(dump.kept, recent, strict=True))
        pending = tuple([op for entry, op in told_of if id(entry) in waiting])
        latest = max([0, *(max(op.issued_ns, op.done_ns) for op in recent)])
        lasts = [self._op(entry, mine, several) for entry in dump.lasts.values()]
        fronts = tuple(self._fronts(dump, groups, lasts, recent))
        completed = _completed(told_of, waiting)
        return Part(tuple(groups.values()), fronts, pending, recent, latest, completed)

    def members(self, group: int) -> tuple[int, ...]:
        """Global ranks of a group, in its own order."""
        return self._members.get(group, ())

    def notes(self) -> Iterator[str]:
        """What these dumps cannot tell."""
        if self._unknown:
            names = listed(sorted(self._unknown))
            yield f"who is in {names} is in no dump: only ranks with ops in it are counted"
        if any(_GLOO in backends for backends in self._backends.values()):
            yield "gloo's recorder has no sends, receives, roots or reduce ops"

    def _learn(self, rank: int, dump: Dump) -> None:
        self._mixed |= dump.sends
        for number, entry in dump.lasts.items():
            name = dump.names[number]
            self._seen.setdefault(name, set()).add(rank)
            backends = self._backends.setdefault(name, set())
            if len(backends) < _MOST_BACKENDS:
                backends.add(told.called(entry).backend)
            if _counts_calls(entry, dump.status.get(number, (0, 0))[0]):
                self._mixed.add(name)
        self._exact &= dump.exact

    def _names(self, dump: Dump) -> dict[str, None]:
        return dict.fromkeys([*dump.groups, *(dump.names[number] for number in dump.lasts)])

    def _group(self, dump: Dump, name: str) -> wire.Group:
        configured = dump.groups.get(name)
        last = next((e for n, e in dump.lasts.items() if dump.names[n] == name), None)
        description = told.group_of(last)[1] if last is not None else ""
        members: tuple[int, ...] = configured.ranks if configured is not None else ()
        if dump.placed:
            # Its description is the backend's name, and only of the whole world places are ranks.
            members = members if members == self._world else ()
            description = ""
        elif configured is not None and configured.description:
            description = configured.description
        if not members and (description == _DEFAULT or name == "0"):
            members = self._world
        if not members:
            members = tuple(sorted(self._seen.get(name, ())))
            self._unknown.add(group_label(name, description))
        backends = sorted(filter(None, self._backends.get(name, ())))
        backend = told.called(last).backend if last is not None else "".join(backends[:1])
        ranks = self._folded.get(members)
        if ranks is None:
            ranks = self._folded[members] = fold(members)
        key = (name, ranks, backend)
        known = self._groups.get(key)
        if known is None:
            shown = f"{name} ({backend})" if len(backends) > 1 else name
            number = len(self._groups) + 1
            known = wire.Group(number, shown, description, backend, ranks, self._exact)
            self._groups[key] = known
            self._members[number] = members
        return known

    def _op(
        self,
        entry: Entry,
        groups: Mapping[int, wire.Group],
        several: frozenset[tuple[int, int]],
    ) -> wire.Op:
        place = entry.get("pg_id", 0)
        group = groups[place]
        issued = told.moment(entry, "created")
        p2p = told.is_p2p(entry)
        number = told.number_of(entry)
        done = told.moment(entry, "discovered_completed")  # 0: when is not told
        signature: wire.Signature | None = self._signature(entry, group)
        if not p2p and (place, number) in several:
            signature = None
        thread = told.whole(entry.get("thread_id"))
        return wire.Op(
            told.whole(entry.get("record_id", entry.get("id"))) + 1,
            group.id,
            number,
            signature,
            self._site(entry.get("frames")),
            issued,
            done,
            thread,
            p2p=p2p,
            timeout_ms=told.whole(entry.get("timeout_ms")),
            started_ns=told.moment(entry, "discovered_started"),
        )

    def _signature(self, entry: Entry, group: wire.Group) -> wire.Signature:
        name = entry.get("profiling_name")
        key = (
            name if isinstance(name, str) else "",
            group.id,
            _shapes(entry.get("input_sizes")),
            _shapes(entry.get("output_sizes")),
            _texts(entry.get("input_dtypes")),
            _texts(entry.get("output_dtypes")),
        )
        try:
            known = self._signatures.get(key)
        except TypeError:  # something else where numbers should be
            return self._signed(entry, group)
        if known is None:
            if len(self._signatures) > _MOST_CACHED:
                self._signatures.clear()
            known = self._signatures[key] = self._signed(entry, group)
        return known

    def _signed(self, entry: Entry, group: wire.Group) -> wire.Signature:
        called = told.called(entry)
        kind = _KINDS.get(called.kind.lower(), called.kind)
        members, peer = self._members[group.id], None
        if called.other is not None and called.other < len(members):
            peer = members[called.other]
        return wire.Signature(
            kind,
            peer=peer,
            inputs=_specs(entry.get("input_sizes"), entry.get("input_dtypes")),
            outputs=_specs(entry.get("output_sizes"), entry.get("output_dtypes")),
        )

    def _site(self, frames: object) -> wire.Site | None:
        """The innermost line outside torch."""
        if not isinstance(frames, list) or not frames:
            return None
        inner = [frame for frame in frames[:_MOST_FRAMES] if isinstance(frame, dict)]
        traced = [
            wire.TraceFrame(
                told.word(frame.get("name")),
                told.word(frame.get("filename"), 1000),
                told.whole(frame.get("line")),
            )
            for frame in inner
        ]
        own = next((frame for frame in traced if is_yours(frame)), traced[0] if traced else None)
        if own is None:
            return None
        key = (own.file, own.line, own.function)
        return self._sites.setdefault(key, wire.Site(*key))

    def _fronts(
        self,
        dump: Dump,
        groups: Mapping[str, wire.Group],
        lasts: Sequence[wire.Op],
        recent: Sequence[wire.Op],
    ) -> Iterator[wire.GroupProgress]:
        """How far the rank has come; where entries are gone, as far as the status tells."""
        collectives = {op.group: op for op in lasts if not op.p2p}
        sends = Counter(op.group for op in recent if op.p2p)
        issued = {dump.names.get(number): counts[0] for number, counts in dump.status.items()}
        newest = {op.group: op.issued_ns for op in (*lasts, *recent)}
        for name, group in groups.items():
            op = collectives.get(group.id)
            number = op.number if op is not None else 0
            counted = issued.get(name, 0)
            # Where there are sends the status counts these, too, and gloo's always does.
            if name not in self._mixed and group.backend != _GLOO and counted > number:
                number, op = counted, None
            if number or group.id in sends:
                yield wire.GroupProgress(
                    group.id, number, sends[group.id], newest.get(group.id, 0), op
                )


def _counts_calls(entry: Entry, enqueued: int) -> bool:
    """Whether the status of its group counts calls, of which a coalesced op has several."""
    calls = told.whole(entry.get("op_id"))
    return enqueued == calls != told.number_of(entry)


def _completed(told_of: Iterable[tuple[Entry, wire.Op]], waiting: set[int]) -> Mapping[int, int]:
    """By group, the last op that is done and that nobody can be done with alone."""
    found: dict[int, int] = {}
    for entry, op in told_of:
        if op.p2p or op.signature is None or id(entry) in waiting:
            continue
        if op.signature.kind.startswith(TOGETHER):
            # gloo's recorder does not tell a failed op, the last one then, from one that is done.
            sure = op.number if entry.get("state") == "completed" else op.number - 1
            found[op.group] = max(sure, found.get(op.group, 0))
    return found


def _coalesced(kept: Iterable[Entry]) -> frozenset[tuple[int, int]]:
    """Numbers that several ops of one group share: which is which cannot be told."""
    counts = Counter([(e.get("pg_id", 0), told.number_of(e)) for e in kept if not told.is_p2p(e)])
    return frozenset(key for key, count in counts.items() if count > 1)


def _shapes(sizes: object) -> tuple[Any, ...] | None:
    """Of tensors, as far as they are lists; what is in them may still be anything."""
    if not isinstance(sizes, list):
        return None
    return tuple([tuple(s[:_MOST_AXES]) if type(s) is list else None for s in sizes[:_MOST_SIZES]])


def _texts(types: object) -> tuple[Any, ...] | None:
    return tuple(types[:_MOST_SIZES]) if isinstance(types, list) else None


def _specs(sizes: object, types: object) -> tuple[wire.TensorSpec, ...] | None:
    """Shapes with their types; None where they are not told."""
    shapes, kinds = _shapes(sizes), _texts(types) or ()
    if shapes is None or None in shapes:
        return None
    made = []
    for index, shape in enumerate(shapes):
        kind = told.word(kinds[min(index, len(kinds) - 1)]) if kinds else ""
        made.append(wire.TensorSpec(_TYPES.get(kind, kind), tuple(map(told.whole, shape))))
    return tuple(made)


_TYPES: Final = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
    "Byte": "uint8",
    "Char": "int8",
    "Bool": "bool",
}
"""torch's C++ names for what its users know by others."""
