"""Converts entries of dumps to ops: groups, numbers, signatures, call sites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.files.flightrecorder import fields
from frtop_tui.files.flightrecorder.dump import Dump
from frtop_tui.files.flightrecorder.fields import Entry
from frtop_tui.job.naming import group_label, listed
from frtop_tui.job.stack_frames import is_user_code

_DEFAULT: Final = "default_pg"
_GLOO: Final = "gloo"
TOGETHER: Final = ("all_reduce", "all_gather", "reduce_scatter", "barrier")
"""No rank can complete these alone: each needs data of all members."""
_MAX_BACKENDS: Final = 8
_MAX_TENSORS: Final = 64
_MAX_AXES: Final = 16
_MAX_FRAMES: Final = 64
_MAX_CACHED: Final = 65_536

_Key = tuple[str, str, str]  # name, folded members, backend


@dataclass(frozen=True, slots=True)
class DumpOps:
    groups: tuple[wire.Group, ...]
    fronts: tuple[wire.GroupProgress, ...]
    pending: tuple[wire.Op, ...]
    recent: tuple[wire.Op, ...]
    latest_ns: int
    completed: Mapping[int, int]  # by group: the last op that proves that all members entered it


class Ops:
    """Converts the dumps of one job to ops; equal groups, signatures and sites are shared."""

    def __init__(self, world: int, dumps: Iterable[tuple[int, Dump]]) -> None:
        self._world = tuple(range(world))
        self._seen: dict[str, set[int]] = {}  # ranks that have entries, by group name
        self._mixed: set[str] = set()  # groups whose status counts more than just collectives
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

    def of(self, dump: Dump) -> DumpOps:
        groups = {name: self._group(dump, name) for name in self._names(dump)}
        mine = {n: groups[name] for n, name in dump.group_names.items() if name in groups}
        several = _coalesced(dump.recent)
        unfinished = set(map(id, dump.pending))
        recent = tuple([self._op(entry, mine, several) for entry in dump.recent])
        pairs = list(zip(dump.recent, recent, strict=True))
        pending = tuple([op for entry, op in pairs if id(entry) in unfinished])
        latest = max([0, *(max(op.issued_ns, op.done_ns) for op in recent)])
        lasts = [self._op(entry, mine, several) for entry in dump.last_entries.values()]
        fronts = tuple(self._progress(dump, groups, lasts, recent))
        completed = _completed(pairs, unfinished)
        return DumpOps(tuple(groups.values()), fronts, pending, recent, latest, completed)

    def members(self, group: int) -> tuple[int, ...]:
        """Global ranks of a group, in its own order."""
        return self._members.get(group, ())

    def notes(self) -> Iterator[str]:
        """Sentences about what these dumps do not record."""
        if self._unknown:
            names = listed(sorted(self._unknown))
            yield f"no dump lists the members of {names}: only ranks with ops in it are counted"
        if any(_GLOO in backends for backends in self._backends.values()):
            yield "gloo's recorder does not record sends, receives, roots or reduce ops"

    def _learn(self, rank: int, dump: Dump) -> None:
        self._mixed |= dump.p2p_groups
        for number, entry in dump.last_entries.items():
            name = dump.group_names[number]
            self._seen.setdefault(name, set()).add(rank)
            backends = self._backends.setdefault(name, set())
            if len(backends) < _MAX_BACKENDS:
                backends.add(fields.profiling_name(entry).backend)
            if _counts_calls(entry, dump.status.get(number, (0, 0))[0]):
                self._mixed.add(name)
        self._exact &= dump.exact

    def _names(self, dump: Dump) -> dict[str, None]:
        used = (dump.group_names[number] for number in dump.last_entries)
        return dict.fromkeys([*dump.groups, *used])

    def _group(self, dump: Dump, name: str) -> wire.Group:
        configured = dump.groups.get(name)
        lasts = dump.last_entries.items()
        last = next((entry for n, entry in lasts if dump.group_names[n] == name), None)
        description = fields.group_name(last)[1] if last is not None else ""
        members: tuple[int, ...] = configured.ranks if configured is not None else ()
        if dump.lists_group_ranks:
            # The description is the backend's name; only in the world group are these ranks global.
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
        backend = fields.profiling_name(last).backend if last is not None else "".join(backends[:1])
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
        group_number = entry.get("pg_id", 0)
        group = groups[group_number]
        issued = fields.time_ns(entry, "created")
        p2p = fields.is_p2p(entry)
        number = fields.sequence_number(entry)
        done = fields.time_ns(entry, "discovered_completed")
        signature: wire.Signature | None = self._signature(entry, group)
        if not p2p and (group_number, number) in several:
            signature = None
        thread = fields.as_count(entry.get("thread_id"))
        return wire.Op(
            fields.record_id(entry) + 1,
            group.id,
            number,
            signature,
            self._site(entry.get("frames")),
            issued,
            done,
            thread,
            p2p=p2p,
            timeout_ms=fields.as_count(entry.get("timeout_ms")),
            started_ns=fields.time_ns(entry, "discovered_started"),
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
        except TypeError:  # not hashable: sizes that are not numbers
            return self._make_signature(entry, group)
        if known is None:
            if len(self._signatures) > _MAX_CACHED:
                self._signatures.clear()
            known = self._signatures[key] = self._make_signature(entry, group)
        return known

    def _make_signature(self, entry: Entry, group: wire.Group) -> wire.Signature:
        name = fields.profiling_name(entry)
        kind = name.common_kind
        members, peer = self._members[group.id], None
        if name.other is not None and name.other < len(members):
            peer = members[name.other]
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
        inner = (_traced(frame) for frame in frames[:_MAX_FRAMES] if isinstance(frame, dict))
        first = next(inner, None)
        if first is None:
            return None
        own = next((frame for frame in chain((first,), inner) if is_user_code(frame)), first)
        key = (own.file, own.line, own.function)
        return self._sites.setdefault(key, wire.Site(*key))

    def _progress(
        self,
        dump: Dump,
        groups: Mapping[str, wire.Group],
        lasts: Sequence[wire.Op],
        recent: Sequence[wire.Op],
    ) -> Iterator[wire.GroupProgress]:
        """How far the rank has come in each group; from the status if entries are gone."""
        collectives = {op.group: op for op in lasts if not op.p2p}
        sends = Counter(op.group for op in recent if op.p2p)
        issued = {dump.group_names.get(n): counts[0] for n, counts in dump.status.items()}
        newest = {op.group: op.issued_ns for op in (*lasts, *recent)}
        for name, group in groups.items():
            op = collectives.get(group.id)
            number = op.number if op is not None else 0
            counted = issued.get(name, 0)
            # The status counts sends, too; gloo's does so even if the dump contains none.
            if name not in self._mixed and group.backend != _GLOO and counted > number:
                number, op = counted, None
            if number or group.id in sends:
                yield wire.GroupProgress(
                    group.id, number, sends[group.id], newest.get(group.id, 0), op
                )


def _traced(frame: Mapping[str, Any]) -> wire.TraceFrame:
    return wire.TraceFrame(
        fields.as_text(frame.get("name")),
        fields.as_text(frame.get("filename"), 1000),
        fields.as_count(frame.get("line")),
    )


def _counts_calls(entry: Entry, enqueued: int) -> bool:
    """Whether the status of its group counts calls: a coalesced op has several."""
    calls = fields.as_count(entry.get("op_id"))
    return enqueued == calls != fields.sequence_number(entry)


def _completed(pairs: Iterable[tuple[Entry, wire.Op]], unfinished: set[int]) -> Mapping[int, int]:
    """The last completed op of each group that no rank can complete alone."""
    found: dict[int, int] = {}
    for entry, op in pairs:
        if op.p2p or op.signature is None or id(entry) in unfinished:
            continue
        if op.signature.kind.startswith(TOGETHER):
            # gloo's recorder shows a failed op, always the last one, as a completed one.
            sure = op.number if entry.get("state") == "completed" else op.number - 1
            found[op.group] = max(sure, found.get(op.group, 0))
    return found


def _coalesced(entries: Iterable[Entry]) -> frozenset[tuple[int, int]]:
    """Groups and numbers that several ops share: nothing says which op is which."""
    collectives = [entry for entry in entries if not fields.is_p2p(entry)]
    counts = Counter([(e.get("pg_id", 0), fields.sequence_number(e)) for e in collectives])
    return frozenset(key for key, count in counts.items() if count > 1)


def _shapes(sizes: object) -> tuple[Any, ...] | None:
    """Shapes of tensors; None for anything but a list. Does not check the items."""
    if not isinstance(sizes, list):
        return None
    return tuple([tuple(s[:_MAX_AXES]) if type(s) is list else None for s in sizes[:_MAX_TENSORS]])


def _texts(types: object) -> tuple[Any, ...] | None:
    return tuple(types[:_MAX_TENSORS]) if isinstance(types, list) else None


def _specs(sizes: object, types: object) -> tuple[wire.TensorSpec, ...] | None:
    """Shapes with their dtypes; None if unknown."""
    shapes, kinds = _shapes(sizes), _texts(types) or ()
    if shapes is None or None in shapes:
        return None
    made = []
    for index, shape in enumerate(shapes):
        kind = fields.as_text(kinds[min(index, len(kinds) - 1)]) if kinds else ""
        made.append(wire.TensorSpec(_TYPES.get(kind, kind), tuple(map(fields.as_count, shape))))
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
"""torch's C++ names of dtypes, mapped to the names that users write."""
