"""Rings of ranks: none ends a tick, hides another rank, or costs without bound."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from agent.ring_builder import RingBuilder
from frtop_probe import wire
from frtop_probe.agent.black_boxes import RecordedJob, awaited_workers
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.statistics_requests import statistics_response
from frtop_probe.ring import layout, sizes
from frtop_probe.ring.header import RingError, read_summary
from frtop_probe.ring.layout import Event, Flag, IssuePhase, MarkKind, Shape, Side, StatusCell
from fuzz.mutations import Mutator
from fuzz.target import Take, target

TINY: Final = Shape(
    groups=6, sites=8, overflow=4, slots=64, chunks=64, marks=32, side=8192, more=128
)
SECTIONS: Final = ("header", "cells", "groups", "sites", "overflow", "sizes", "marks", "all",
                   "slots", "slots", "side", "side", "side")  # fmt: skip


class Original:
    """A ring with something of everything, and where it is."""

    def __init__(self, folder: Path) -> None:
        ring = RingBuilder(folder, shape=TINY, rank=3)
        ring.standard_tables()
        ring.add_group(2, ranks="0-3", name="dp", backend="nccl")
        ring.add_signature(2, "all_to_all", inputs=[64, 2], outputs=[64, 2], splits=([8] * 8, []))
        ring.add_signature(3, "broadcast", inputs=[7], root=2)
        ring.add_signature(4, "send", inputs=[7], peer=3)
        ring.add_entry(Side.FORM, 5, {"kind": "new_group", "members": "0-3"})
        ring.add_entry(Side.NOTE, 1, "a note")
        ring.add_entry(Side.REPORT, 1, "loss")
        ring.add_entry(Side.MODULE, 1, ["layers.1", "Net", "DDP bucket 0: a, b", "a", "b"])
        ring.add_entry(Side.TRANSPORTS, 0, [["DeepEP", "module deep_ep is imported"]])
        frame = {"function": "f", "file": "/srv/a.py", "line": 3}
        ring.add_entry(
            Side.EXCEPTION, 1,
            {"type": "ValueError", "text": "x", "thread": "MainThread", "main": True,
             "at_ns": 7, "frames": [frame]},
        )  # fmt: skip
        for number in range(120):
            done = number < 110
            ring.op(1 + number % 2, signature=1 + number % 5, done=done, age_s=3)
        ring.pseudo("new_group")
        now = time.monotonic_ns()
        issuer = IssuePhase.BACKWARD << layout.PHASE_SHIFT | 1
        for number in range(2):
            ring.sequence += 1
            ring.write_slot(
                ring.sequence, now - 10**9, 200 + number, 1, 2, 1, 1, 5, 1, Event.OP,
                Flag.DEVICE | Flag.ENQUEUED, issuer, 1, wait_ns=now - 10**8, later=Flag.LATE,
            )  # fmt: skip
        for number in range(40):
            kind = list(MarkKind)[number % 6]
            ring.mark(kind, now - (41 - number) * 10**8, 0 if number > 36 else now, number % 3)
            ring.report(number, 1, float("nan") if number % 9 == 0 else -0.5)
        for cell in (StatusCell.FETCH_BEGIN_NS, StatusCell.STEP_NS, StatusCell.EXCEPTION_NS):
            ring.cells[cell] = now
        ring.cells[StatusCell.FETCH_WORKER_PID] = os.getpid()
        ring.cells[StatusCell.LONGER_FROM] = 100
        self.path = ring.path
        self.data = bytes(ring.map)
        self.entries = list(_entries(self.data, ring.used))
        self.begins = {
            "header": 0, "cells": layout.CELLS_OFFSET, "groups": layout.GROUPS_OFFSET,
            "sites": TINY.sites_offset, "overflow": TINY.overflow_offset,
            "sizes": TINY.sizes_offset, "marks": TINY.marks_offset, "side": TINY.side_offset,
            "slots": TINY.slots_offset, "all": 0,
        }  # fmt: skip
        ends = [*list(self.begins.values())[1:-1], TINY.longest, TINY.longest]
        self.ends = dict(zip(self.begins, ends, strict=True))

    def mutated(self, data: bytearray, mutator: Mutator) -> bytes:
        """The ring with one to four changes, most of them with right checksums."""
        for _ in range(mutator.random.choice((1, 1, 2, 4))):
            section = mutator.random.choice(SECTIONS)
            mutator.note(section)
            change = {
                "slots": _slot, "overflow": _overflow, "marks": _mark, "sizes": _record,
                "side": self._entry, "cells": _cell, "groups": _group, "sites": _site,
            }.get(section)  # fmt: skip
            if change is not None and mutator.chance(0.7):
                change(data, mutator)
            else:
                end = self.ends[section] if section != "header" else layout.HEADER.size
                mutator.change(data, self.begins[section], end)
        return bytes(data)

    def _entry(self, data: bytearray, mutator: Mutator) -> None:
        """Another entry behind those that are there: of the same kind and number, it counts."""
        chosen = mutator.random.choice(list(Side))
        of_kind = [one for one in self.entries if one[0] == chosen]
        kind, number, text = mutator.random.choice(of_kind)
        text = mutator.json(text)
        used = struct.unpack_from("=q", data, layout.CELLS_OFFSET + 8 * StatusCell.SIDE_USED)[0]
        at, padding = TINY.side_offset + used, -len(text) % 8
        size = layout.SIDE_ENTRY.size + len(text) + padding
        if not 0 <= used <= TINY.side - size:
            return
        layout.SIDE_ENTRY.pack_into(data, at, len(text), kind, padding, number, crc32(text))
        data[at + layout.SIDE_ENTRY.size : at + layout.SIDE_ENTRY.size + len(text)] = text
        _set_cell(data, StatusCell.SIDE_USED, used + size)


def _entries(data: bytes, used: int) -> Iterator[tuple[int, int, bytes]]:
    at, end = TINY.side_offset, TINY.side_offset + used
    while at < end:
        length, kind, padding, number, _ = layout.SIDE_ENTRY.unpack_from(data, at)
        at += layout.SIDE_ENTRY.size
        yield kind, number, data[at : at + length]
        at += length + padding


def _set_cell(data: bytearray, cell: int, value: int) -> None:
    at = layout.CELLS_OFFSET + 8 * cell
    data[at : at + 8] = (value % 2**64).to_bytes(8, "little")


def _cell(data: bytearray, mutator: Mutator) -> None:
    cell, value = mutator.random.choice(list(StatusCell)), mutator.word()
    mutator.note(f"{cell.name} = {value}")
    _set_cell(data, cell, value)


def _group(data: bytearray, mutator: Mutator) -> None:
    """Fills one to all rows, or changes one."""
    size, end = layout.GROUP_ROW.size, TINY.sites_offset
    at = layout.GROUPS_OFFSET + mutator.random.randrange(TINY.groups) * size
    if mutator.chance(0.7):
        mutator.change(data, at, at + layout.GROUP_COPY)
        return
    byte = mutator.random.choice((b"\0", b"\x3f", b"\x7f", b"\xff"))
    mutator.note(f"{byte!r} from {at}")
    data[at:end] = byte * (end - at)


def _slot(data: bytearray, mutator: Mutator) -> None:
    place = mutator.random.randrange(TINY.slots + TINY.more)
    _body(data, mutator, TINY.slots_offset + place * layout.SLOT_SIZE, layout.SLOT_BODY.size,
          layout.SLOT_SIZE)  # fmt: skip


def _overflow(data: bytearray, mutator: Mutator) -> None:
    at = TINY.overflow_offset + mutator.random.randrange(TINY.overflow) * layout.SLOT_SIZE
    slot = TINY.slots_offset + mutator.random.randrange(TINY.slots) * layout.SLOT_SIZE
    data[at : at + layout.SLOT_SIZE] = data[slot : slot + layout.SLOT_SIZE]
    _body(data, mutator, at, layout.SLOT_BODY.size, layout.SLOT_SIZE)


def _mark(data: bytearray, mutator: Mutator) -> None:
    at = TINY.marks_offset + mutator.random.randrange(TINY.marks) * layout.MARK_SIZE
    _body(data, mutator, at, layout.MARK_BODY.size, layout.MARK_SIZE)
    if mutator.chance(0.5):  # as a reported value, whose sum is also of the value
        end = at + layout.MARK_BODY.size
        kind = at + layout.MARK_BODY.size - 8
        struct.pack_into("=I", data, kind, MarkKind.REPORT)
        total = crc32(bytes(data[at + layout.MARK_SAMPLES : at + layout.MARK_SIZE]),
                      crc32(bytes(data[at:end])))  # fmt: skip
        struct.pack_into("=I", data, end, total)


def _site(data: bytearray, mutator: Mutator) -> None:
    at = TINY.sites_offset + mutator.random.randrange(1, TINY.sites) * layout.SITE_ROW.size
    _body(data, mutator, at, layout.SITE_BODY.size, layout.SITE_ROW.size)


def _body(data: bytearray, mutator: Mutator, at: int, body: int, size: int) -> None:
    """Changes a row, whose checksum is behind its body and right afterwards."""
    mutator.change(data, at, at + size if mutator.chance(0.3) else at + body)
    struct.pack_into("=I", data, at + body, crc32(bytes(data[at : at + body])))


def _record(data: bytearray, mutator: Mutator) -> None:
    position = mutator.random.randrange(1, TINY.chunks // 4)
    count = mutator.random.choice((0, 1, 4, 9, 12))
    values = [min(mutator.word(), 2**64 - 1) if mutator.chance(0.3) else mutator.random.randrange(5)
              for _ in range(count)]  # fmt: skip
    mutator.note(f"sizes {position}: {values}")
    packed = sizes.pack(values)
    assert packed is not None
    record = sizes.record(position, *packed)
    at = TINY.sizes_offset + position * layout.CHUNK
    data[at : at + len(record)] = record


class Host:
    """A tracker with a whole rank and a damaged one."""

    def __init__(self, folder: Path) -> None:
        parts = (folder / "original", folder / "whole", folder / "damaged")
        for part in parts:
            part.mkdir()
        self.original = Original(parts[0])
        whole = RingBuilder(parts[1], pid=os.getppid(), rank=1)
        whole.standard_tables()
        self.whole = whole.path, bytes(whole.map)
        self.path = parts[2] / self.original.path.name
        self.folders = parts[1:]

    async def try_input(self, data: bytes) -> None:
        """Takes a ring; a second one behind it replaces the first while that is open."""
        size = len(self.original.data)
        self.path.write_bytes(_moved_here(data[:size], self.original.data))
        self.whole[0].write_bytes(self.whole[1])
        tracker = RankTracker(self.folders)
        try:
            await self._follow(tracker, _moved_here(data[size:], self.original.data))
        finally:
            tracker.clear()
            self.path.unlink(missing_ok=True)

    async def _follow(self, tracker: RankTracker, later: bytes) -> None:
        now = time.monotonic_ns()
        for tick in range(3):
            result = tracker.tick(now + tick * 500_000_000)
            update = wire.Update("h", "i", 1, now, now, result.ranks, notes=tracker.notes)
            assert wire.decode_update(wire.encode(update)) == update
            if tick == 0 and later:
                self.path.write_bytes(later)
        assert any(rank.identity and rank.identity.rank == 1 for rank in tracker.ranks.values())
        full = wire.StateResponse(1, wire.Update("h", "i", 1, now, now, tracker.full()))
        assert wire.decode_response(wire.encode(full)) == full
        with suppress(RingError, OSError):
            read_summary(self.path)
        await _ask(tracker, now)
        for rank in list(tracker.ranks.values()):
            if isinstance(rank, RingRank):
                rank.lives = False
        for _ in range(2):
            ends = tracker.tick(now + 9_000_000_000).ranks
            wire.decode_update(wire.encode(wire.Update("h", "i", 2, now, now, ends)))
        # What is wrong in a file is known, and left out: nothing unforeseen was raised.
        assert not [note for note in tracker.notes if "rror" in note or "xpected" in note]


async def _ask(tracker: RankTracker, now: int) -> None:
    """What is read on request, and for black boxes."""
    ranks = list(tracker.ranks.values())
    for samples in (0, 8):
        request = wire.StatisticsRequest(
            1, tuple(tracker.ranks), now - 20 * 10**9, now, samples == 0, samples, 4
        )
        try:
            answer = await statistics_response("h", request, ranks)
        except RingError:
            return  # the agent answers so
        assert wire.decode_response(wire.encode(answer)) == answer
    job = RecordedJob("h", "/r", wire.Job("a", 1, 2))
    for rank in ranks:
        job.add_rank(rank, rank.job or job.job)
    for one in await job.histories():
        wire.decode_response(bytes(one))  # type: ignore[call-overload]  # encoded already
    wire.encode(wire.Update("h", "i", 1, now, now, job.updates_now(now)))
    awaited_workers(ranks)
    for rank in ranks:
        assert rank.ended_by_exception in (False, True)
        assert rank.has_failed in (False, True)
        repr((rank.progress, rank.history_stamp, rank.last_sign_ns()))
        ops, lost = rank.recent_ops(50)
        marks = rank.recent_marks(ops[0].issued_ns if ops else 0, 50)
        taken = wire.Snapshot(1, now, rank.status(), ops=ops, ops_lost=lost, marks=marks)
        wire.encode(wire.SnapshotResponse(1, "h", (taken,), now))


_hosts: list[Host] = []
"""The one of this process, once there is one: changed rings are made from its original."""
_IDENTITY: Final = ((16, 48), (64, 68))
"""Where the header has start, namespace, boot and pid of the process that wrote it."""


def _host_in(folder: Path) -> Host:
    if not _hosts:
        (folder / "rings").mkdir()
        _hosts.append(Host(folder / "rings"))
    return _hosts[0]


def _rings(folder: Path) -> Iterator[bytes]:
    yield _host_in(folder).original.data


def _as_ring(data: bytes, mutator: Mutator) -> bytes:
    original = _hosts[0].original
    size = len(original.data)
    first = bytearray(data[:size] if len(data) >= size else original.data)
    changed = original.mutated(first, mutator)
    if mutator.chance(0.03):
        cut = mutator.random.randrange(len(changed))
        mutator.note(f"cut at {cut}")
        return changed[:cut]
    if mutator.chance(0.3):  # and while it is open
        changed += original.mutated(bytearray(original.data), mutator)
    return changed


def _moved_here(data: bytes, own: bytes) -> bytes:
    """A ring that another process of the fuzzer made, as if it were this one's."""
    end = _IDENTITY[-1][1]
    if len(data) < end or any(data[a : a + 4] == own[a : a + 4] for a, _ in _IDENTITY):
        return data
    moved = bytearray(data)
    for at, until in _IDENTITY:
        moved[at:until] = own[at:until]
    return bytes(moved)


@target("the ring of a rank", _as_ring, _rings, most=2 * TINY.longest, quick=60, many=60_000)
def rings(folder: Path, stack: ExitStack) -> Take:
    host = _host_in(folder)
    stack.callback(_hosts.clear)
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)

    def take(data: bytes) -> bool:
        loop.run_until_complete(host.try_input(data))
        return len(data) >= TINY.longest

    return take
