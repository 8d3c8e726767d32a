"""Converts a ring to wire types: resolves ids to signatures, sites and groups.

The side table comes from another process and may contain anything: every value is checked,
and is unknown if invalid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec

from frtop_probe import wire
from frtop_probe.ring import sizes
from frtop_probe.ring.later_groups import LaterGroups
from frtop_probe.ring.layout import (
    LONGEST,
    MAX_MODULES,
    PHASE_SHIFT,
    Event,
    Flag,
    IssuePhase,
    MarkKind,
    StatusCell,
)
from frtop_probe.ring.marks import MarkRow, read_marks
from frtop_probe.ring.rank_ranges import unfold
from frtop_probe.ring.reader import EventRow, GroupRow, OpKey, Ring

MAX_TEXT: Final = 4096
MAX_FOLDED: Final = 128 * 1024
"""Most bytes of folded ranks, more than any group has. A list is never cut: it would name the
wrong ranks."""
MAX_NOTES: Final = 64
MAX_FRAMES: Final = 128
MAX_TRANSPORTS: Final = 32
MAX_SIGNATURES: Final = 4096
"""Most signatures kept: if shapes vary, each op has its own."""
MAX_MEMBERS: Final = 64
"""Most modules of a bucket sent."""
MAX_NAME: Final = 512
PHASES: Final = {int(p): p.name.lower() for p in IssuePhase if p is not IssuePhase.UNRECORDED}
MAX_EXPLICIT: Final = 1024
"""Largest group for which even splits of an all_to_all are listed."""

Value = TypeVar("Value")
Specs = tuple[wire.TensorSpec, ...]


class RingView:
    """Reads one ring; caches values that never change."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._later = LaterGroups(ring)
        self._identity: tuple[tuple[dict[str, Any], int, int], wire.Identity] | None = None
        self._signatures: dict[tuple[OpKey, str | None], wire.Signature | None] = {}
        self._members: dict[int, tuple[object, tuple[int, ...]]] = {}
        self._sites: dict[int, wire.Site | None] = {}
        self._issuers: dict[int, wire.Issuer] = {}

    def identity(self) -> wire.Identity:
        stamp = (
            self.ring.rank_identity, self.ring.cell(StatusCell.RANK), self.ring.recorder_tid
        )  # fmt: skip
        if self._identity is None or stamp != self._identity[0]:
            self._identity = stamp, self._read_identity(*stamp)
        return self._identity[1]

    def _read_identity(self, who: Mapping[str, Any], rank: int, tid: int) -> wire.Identity:
        birth = self.ring.header
        nested = who.get("job")
        job: Mapping[str, Any] = nested if isinstance(nested, dict) else who
        return wire.Identity(
            pid=birth.pid,
            start_ticks=birth.start_ticks,
            rank=rank if rank >= 0 else _take(who, "rank", int, -1),
            local_rank=_take(who, "local_rank", int, -1),
            job=wire.Job(
                master_addr=_take(job, "master_addr", str, ""),
                master_port=_take(job, "master_port", int, 0),
                world_size=_take(job, "world_size", int, 0),
                run_id=_take(job, "run_id", str, ""),
                attempt=_take(job, "attempt", int, 0),
                nonce=_take(job, "nonce", str, ""),
                name=_take(job, "name", str, ""),
            ),
            argv=_take(who, "argv", tuple[str, ...], ()),
            cwd=_take(who, "cwd", str, ""),
            torch=_take(who, "torch", str, ""),
            python=_take(who, "python", str, ""),
            started_ns=birth.monotonic_ns,
            main_ident=birth.main_ident,
            recorder_tid=tid,
            record=_take(who, "record", str, ""),
            settings=_take(who, "settings", tuple[tuple[str, str], ...], ()),
            nccl=_take(who, "nccl", str, ""),
        )

    def status(self) -> wire.RankStatus:
        cell = self.ring.cell
        begin, end = cell(StatusCell.FETCH_BEGIN_NS), cell(StatusCell.FETCH_END_NS)
        fetch = None
        if begin:
            fetch = wire.DataLoaderFetch(
                begin,
                end,
                cell(StatusCell.FETCH_WORKER),
                cell(StatusCell.FETCH_WORKER_PID),
                cell(StatusCell.FETCH_WORKERS),
            )
        return wire.RankStatus(
            state=cell(StatusCell.STATE),
            heartbeat_ns=cell(StatusCell.HEARTBEAT_NS),
            ops=min(self.ring.ops() + self._later.ops, LONGEST),
            step=cell(StatusCell.STEP),
            step_ns=cell(StatusCell.STEP_NS),
            fetch=fetch,
            side_lost=cell(StatusCell.SIDE_LOST),
            pending_lost=cell(StatusCell.PENDING_LOST),
            hook_errors=cell(StatusCell.HOOK_ERRORS),
        )

    def group_rows(self) -> Iterable[GroupRow]:
        """The row of each group with ops; of those that have none, what its ops say."""
        return chain(self.ring.group_rows(), self._later.rows())

    def forget(self, groups: Collection[int]) -> None:
        """Forgets groups that were dropped."""
        for group in groups:
            self._members.pop(group, None)
        for key in [key for key in self._signatures if key[0].group in groups]:
            del self._signatures[key]

    def group(self, number: int) -> wire.Group | None:
        entry = self.ring.groups.get(number)
        if entry is None:
            return None
        return wire.Group(
            id=number,
            name=_take(entry, "name", str, ""),
            description=_take(entry, "description", str, ""),
            backend=_take(entry, "backend", str, ""),
            ranks=_folded(entry, "ranks"),
            exact=_take(entry, "exact", bool, False) and self._later.is_exact(number),
            epoch=_take(entry, "epoch", int, 0),
            timeout_s=_take(entry, "timeout_s", float, 0.0),
            blind=_take(entry, "blind", str, ""),
            error=_take(entry, "error", str, ""),
        )

    def exception(self) -> wire.UncaughtException | None:
        """The exception that ended the program, else the last one that ended a thread."""
        entries = self.ring.exceptions
        if not entries:
            return None
        ends = [entry for entry in entries if entry.get("main")]
        entry = ends[-1] if ends else entries[-1]
        frames = entry.get("frames")
        return wire.UncaughtException(
            kind=_take(entry, "type", str, "") or _take(entry, "kind", str, "Exception"),
            text=_take(entry, "text", str, ""),
            thread=_take(entry, "thread", str, ""),
            main=_take(entry, "main", bool, False),
            at_ns=_take(entry, "at_ns", int, 0) or self.ring.cell(StatusCell.EXCEPTION_NS),
            frames=tuple(_frames(frames if isinstance(frames, list) else ())),
        )

    def notes(self) -> tuple[str, ...]:
        texts = [self.ring.notes[number] for number in sorted(self.ring.notes)]
        return tuple(_text(text) for text in texts[-MAX_NOTES:])

    def transports(self) -> tuple[wire.Transport, ...] | None:
        """The transports beyond c10d that the rank can use; None if not recorded yet."""
        found = self.ring.transports
        if found is None:
            return None
        return tuple(wire.Transport(_text(n), _text(sign)) for n, sign in found[:MAX_TRANSPORTS])

    def op(self, row: EventRow) -> wire.Op:
        count, usual = self.ring.typical_wait_ns(row.site)
        return wire.Op(
            sequence=row.sequence,
            group=row.group,
            number=row.number,
            signature=self.signature(row.key, row.reduce),
            site=self.site(row.site),
            issued_ns=row.issued_ns,
            done_ns=row.done_ns,
            thread=row.thread,
            sync=bool(row.flags & Flag.SYNC),
            p2p=bool(row.flags & Flag.P2P),
            tracked=not row.flags & Flag.UNTRACKED,
            pseudo=row.event is Event.PSEUDO,
            timeout_ms=row.timeout_ms,
            usual_ns=usual,
            usual_count=count,
            late=bool(row.flags & Flag.LATE),
            # For complete ops: the wait of the thread that issued them.
            wait_ns=0 if row.done_ns and Flag.ELSEWHERE in row.flags else row.wait_ns,
            on_device=bool(row.flags & Flag.DEVICE),
            enqueued=bool(row.flags & Flag.ENQUEUED),
            issuer=self.issuer(row.issuer),
            message=row.message,
        )

    def last_op(self, row: GroupRow) -> wire.Op:
        """The last op of a group, from the group's row.

        If the history has lost the op, it is complete (pending ops are stored apart), at an unknown
        time; its issue time is used instead. If nothing of it is left, the issue time is also
        unknown.
        """
        last = self.ring.last_op(row)
        if last is None:
            return wire.Op(row.sequence, row.group, row.number, None, None, 0, 1, dated=False)
        if not last.done_ns and self.ring.event(row.sequence) is None:
            pending = next((r for r in self.ring.pending() if r.sequence == row.sequence), None)
            last = pending or dataclasses.replace(last, done_ns=last.issued_ns)
        return self.op(last)

    def ops(self, limit: int) -> tuple[tuple[wire.Op, ...], int]:
        """The newest `limit` ops, oldest first, and how many ops in between cannot be read."""
        rows, _ = self.ring.events(0, limit)
        between = rows[-1].sequence - rows[0].sequence + 1 if rows else 0
        return tuple(map(self.op, rows)), between - len(rows)

    def marks(self, since_ns: int = 0) -> tuple[wire.Mark, ...]:
        """The rank's marks from `since_ns` on, oldest first."""
        return tuple(map(self._mark, read_marks(self.ring, since_ns)))

    def _mark(self, row: MarkRow) -> wire.Mark:
        text = ""
        number = row.number
        if row.kind is MarkKind.NOTE:
            text, number = _text(self.ring.notes.get(number, "")), 0
        elif row.kind is MarkKind.FETCH:
            number = 0
        return wire.Mark(row.kind.name.lower(), row.begin_ns, row.end_ns, number, text, row.samples)

    def members(self, group: int) -> tuple[int, ...]:
        """Global ranks of a group by group rank; empty while unknown."""
        entry = self.ring.groups.get(group)
        if entry is None:
            return ()
        known = self._members.get(group)
        if known is not None and known[0] is entry:
            return known[1]
        try:
            found = unfold(_folded(entry, "ranks"))
        except ValueError:
            found = ()
        self._members[group] = entry, found
        return found

    def signature(self, key: OpKey, reduce: str | None) -> wire.Signature | None:
        """An op's signature; None if its form is still unknown or malformed."""
        known = self._signatures.get((key, reduce))
        if known is not None:
            return known
        form = self.ring.forms.get(key.form)
        if form is None:
            return None  # may still be written
        integers = self.ring.sizes(key.sizes)
        found = signature(
            form, reduce, key.party, None if integers is None else sizes.decode(form, integers),
            self.members(key.group) if key.party or form.get("splits") else (),
        )  # fmt: skip
        complete = key.sizes == 0 or integers is not None
        if found is not None and complete and (key.group in self.ring.groups or not key.group):
            if len(self._signatures) >= MAX_SIGNATURES:
                self._signatures.clear()
            self._signatures[key, reduce] = found
        return found

    def site(self, number: int) -> wire.Site | None:
        """A call site; None while unknown."""
        found = self._sites.get(number)
        if found is None and number in self.ring.sites:
            file, line, function = self.ring.sites[number]
            line = line if 0 <= line < 2**31 else 0
            found = self._sites[number] = wire.Site(_text(file), line, _text(function))
        return found

    def issuer(self, word: int) -> wire.Issuer | None:
        """The issuer of an op, from the bits in its slot; None if not recorded."""
        known = self._issuers.get(word)
        if known is not None or not word:
            return known
        phase = PHASES.get(word >> PHASE_SHIFT)
        number = word & MAX_MODULES
        module = self.ring.modules.get(number)
        if phase is None or (number and module is None):
            return None  # may still be written
        path, root, part, *members = map(_name, module or ("", "", ""))
        found = wire.Issuer(phase, path, root, part, tuple(members[:MAX_MEMBERS]))
        self._issuers[word] = found
        return found


def signature(
    form: Mapping[str, Any],
    reduce: str | None,
    party: int,
    found: sizes.Sizes | None,
    members: tuple[int, ...],
) -> wire.Signature | None:
    """Joins what a ring knows of an op. `found` is None if shapes, splits and tag are unknown."""
    kind = _take(form, "kind", str, "")
    if not kind:
        return None
    rank = members[party - 1] if 0 < party <= len(members) else None
    role = form.get("party")
    found = found or sizes.Sizes()
    inputs, outputs = _specs(found.inputs), _specs(found.outputs)
    return wire.Signature(
        kind=kind,
        reduce=reduce,
        root=rank if role == "root" else None,
        peer=rank if role == "peer" else None,
        tag=found.tag,
        inputs=inputs,
        outputs=outputs,
        in_splits=_splits(found.in_splits, inputs, len(members)),
        out_splits=_splits(found.out_splits, outputs, len(members)),
        members=_folded(form, "members") or None,
    )


def _specs(runs: tuple[sizes.Run, ...] | None) -> Specs | None:
    if runs is None:
        return None
    return tuple(
        wire.TensorSpec(_text(dtype), shape, count, _text(device))
        for dtype, shape, count, device in runs
    )


def _splits(
    given: tuple[int, ...] | None, specs: Specs | None, world: int
) -> tuple[int, ...] | None:
    """Splits as lengths along the first dimension; eager calls leave even splits empty."""
    if given or given is None or not specs:
        return given or None
    shape = specs[0].shape
    if not 0 < world <= MAX_EXPLICIT or not shape or shape[0] % world:
        return None
    return (shape[0] // world,) * world


def _frames(entries: Iterable[Any]) -> Iterable[wire.TraceFrame]:
    for entry in list(entries)[:MAX_FRAMES]:
        try:
            yield msgspec.convert(_sendable(entry), wire.TraceFrame)
        except msgspec.ValidationError:
            continue


def _take(entry: Mapping[str, Any], name: str, kind: Any, default: Value) -> Value:
    try:
        found: Value = msgspec.convert(_sendable(entry[name]), kind)
    except (KeyError, msgspec.ValidationError, RecursionError):
        return default
    return found


def _folded(entry: Mapping[str, Any], name: str) -> str:
    """Folded ranks; "" if missing, malformed or too long."""
    found = entry.get(name)
    valid = isinstance(found, str) and found.isascii() and len(found) <= MAX_FOLDED
    return str(found) if valid else ""


def _sendable(value: Any) -> Any:
    """Replaces JSON values that no message can hold: lone surrogates and huge numbers.

    Surrogates are common: Python uses them in file names that are not UTF-8.
    """
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [_sendable(part) for part in value]
    if isinstance(value, int | float) and not -LONGEST <= value <= LONGEST:
        return None
    return value


def _text(value: str) -> str:
    if value.isascii():
        return value[:MAX_TEXT]
    return value[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")


def _name(value: str) -> str:
    return _text(value)[:MAX_NAME]
