"""Builds rings from the layout alone, so that the agent is tested without the recorder."""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from frtop_probe.proc import processes
from frtop_probe.ring import layout, sizes
from frtop_probe.ring.layout import Event, Flag, MarkKind, Shape, Side, State, StatusCell


def boot() -> bytes:
    return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes


def pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


class RingBuilder:
    """A ring of `pid` (this process by default), as a recorder would write it."""

    def __init__(
        self,
        folder: Path,
        *,
        pid: int | None = None,
        start_ticks: int | None = None,
        namespace: int | None = None,
        boot_id: bytes | None = None,
        shape: Shape = layout.SMALL,
        rank: int = 0,
    ) -> None:
        self.pid = os.getpid() if pid is None else pid
        if start_ticks is None:
            found = processes.read_stat(self.pid)
            assert found is not None
            start_ticks = found.start_ticks
        self.path = folder / f"{self.pid}-{start_ticks}{layout.SUFFIX}"
        self.shape = shape
        draft = self.path.with_suffix(".draft")
        with draft.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shape.size)
            file.truncate(shape.longest)
        with draft.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), shape.longest)
        values: Mapping[str, Any] = {
            "start_ticks": start_ticks,
            "namespace": pid_namespace() if namespace is None else namespace,
            "boot": boot() if boot_id is None else boot_id,
        }
        layout.HEADER.pack_into(
            self.map, 0, layout.MAGIC, layout.VERSION, shape.longest, values["start_ticks"],
            values["namespace"], values["boot"], time.monotonic_ns(), time.time_ns(), self.pid, 0,
            1, *([0] * (len(layout.HEADER.unpack(bytes(layout.HEADER.size))) - 19)),
            *shape,
        )  # fmt: skip
        self.cells = memoryview(self.map)[layout.CELLS_OFFSET : layout.GROUPS_OFFSET].cast("q")
        self.used = 0
        self.sequence = 0
        self.marks = 0
        self.chunks = 1
        self.numbers: dict[int, int] = {}
        self.signatures: dict[int, tuple[int, int, int]] = {}
        self.cells[StatusCell.RANK] = rank
        self.cells[StatusCell.STATE] = State.ON
        self.cells[StatusCell.OLDEST] = 1
        self.add_entry(
            Side.IDENTITY,
            0,
            {
                "rank": rank,
                "local_rank": rank,
                "world_size": 8,
                "master_addr": "localhost",
                "master_port": 29500,
                "run_id": os.environ.get("TORCHELASTIC_RUN_ID", "test"),
                "argv": ["train.py"],
                "record": os.environ.get("FRTOP_RECORD", ""),
            },
        )
        self.heartbeat()
        draft.rename(self.path)

    def heartbeat(self) -> None:
        self.cells[StatusCell.HEARTBEAT_NS] = time.monotonic_ns()
        self.cells[StatusCell.HEARTBEATS] += 1

    def begin_side_table(self) -> None:
        """Begins the side table anew."""
        self.used = self.cells[StatusCell.SIDE_USED] = 0
        self.cells[StatusCell.SIDE_VERSION] += 1

    def add_entry(self, kind: Side, number: int, payload: object) -> None:
        text = json.dumps(payload).encode()
        padding = -len(text) % 8
        at = self.shape.side_offset + self.used
        checksum = crc32(text, self.cells[StatusCell.SIDE_VERSION])
        layout.SIDE_ENTRY.pack_into(self.map, at, len(text), kind, padding, number, checksum)
        start = at + layout.SIDE_ENTRY.size
        self.map[start : start + len(text)] = text
        self.used += layout.SIDE_ENTRY.size + len(text) + padding
        self.cells[StatusCell.SIDE_USED] = self.used

    def add_signature(
        self,
        number: int,
        kind: str,
        *,
        inputs: Sequence[int] | None = None,
        outputs: Sequence[int] | None = None,
        splits: tuple[Sequence[int], Sequence[int]] | None = None,
        root: int = -1,
        peer: int = -1,
    ) -> None:
        """Writes what `op` refers to by this number: a form, and sizes of float32 on the CPU."""
        form: dict[str, Any] = {"kind": kind}
        integers: list[int] = []
        for name, shape in (("inputs", inputs), ("outputs", outputs)):
            if shape is not None:
                form[name] = [["float32", "cpu"]]
                integers += [1, 0, 1, len(shape), *shape]
        if splits is not None:
            form["splits"] = True
            integers += [len(splits[0]), *splits[0], len(splits[1]), *splits[1]]
        if root >= 0 or peer >= 0:
            form["party"] = "root" if root >= 0 else "peer"
        position = self.add_sizes(integers) if integers else 0
        self.signatures[number] = number, max(root, peer) + 1, position
        self.add_entry(Side.FORM, number, form)

    def add_sizes(self, integers: Sequence[int]) -> int:
        """Writes a record of sizes; returns its position."""
        packed = sizes.pack(integers)
        assert packed is not None
        position, self.chunks = self.chunks, self.chunks + sizes.chunks(packed[0])
        record = sizes.record(position, *packed)
        for chunk in range(0, len(record), layout.CHUNK):
            place = (position + chunk // layout.CHUNK) % self.shape.chunks
            at = self.shape.sizes_offset + place * layout.CHUNK
            piece = record[chunk : chunk + layout.CHUNK]
            self.map[at : at + len(piece)] = piece
        return position

    def add_group(
        self, number: int, ranks: str = "0-7", name: str = "0", backend: str = "gloo"
    ) -> None:
        self.add_entry(
            Side.GROUP,
            number,
            {
                "name": name,
                "description": "default_pg",
                "backend": backend,
                "ranks": ranks,
                "exact": True,
                "timeout_s": 1800.0,
            },
        )

    def op(
        self,
        group: int = 1,
        *,
        signature: int = 1,
        site: int = 1,
        flags: Flag = Flag.SYNC,
        done: bool = False,
        age_s: float = 0.0,
    ) -> int:
        """Issues an op; returns its sequence number."""
        self.sequence += 1
        number = self.numbers[group] = self.numbers.get(group, 0) + 1
        issued = time.monotonic_ns() - int(age_s * 1e9)
        form, party, position = self.signatures.get(signature, (signature, 0, 0))
        self.write_slot(
            self.sequence, issued, number, 1, group, form, site, 0, party, Event.OP, flags, 0,
            position, done_ns=issued if done else 0, reduce=1,
        )  # fmt: skip
        if group >= self.shape.groups:
            return self.sequence
        at = layout.GROUPS_OFFSET + group * layout.GROUP_ROW.size
        slot = self._slot(self.sequence)
        struct.pack_into("=3Q", self.map, at, self.sequence, number, 0)
        to = at + layout.GROUP_COPY
        self.map[to : to + layout.COPIED] = self.map[slot : slot + layout.COPIED]
        return self.sequence

    def write_slot(
        self, *values: int, done_ns: int = 0, wait_ns: int = 0, later: int = 0, reduce: int = 0
    ) -> None:
        """Writes a slot with the given body."""
        body = layout.SLOT_BODY.pack(*values)
        at = self._slot(values[0])
        layout.SLOT.pack_into(self.map, at, body, crc32(body), later, reduce, 0, done_ns, wait_ns)
        self.cells[StatusCell.HEAD] = values[0]

    def pseudo(self, kind: str) -> int:
        """Begins a call that makes groups; returns its sequence number."""
        self.sequence += 1
        self.add_entry(Side.FORM, 100, {"kind": kind})
        self.write_slot(
            self.sequence, time.monotonic_ns(), 1, 1, layout.NO_GROUP, 100, 0, 0, 0,
            Event.PSEUDO, Flag.SYNC, 0, 0,
        )  # fmt: skip
        return self.sequence

    def mark(self, kind: MarkKind, begin_ns: int, end_ns: int, number: int = 0) -> int:
        """Writes a mark; returns its sequence number."""
        self.marks += 1
        body = layout.MARK_BODY.pack(self.marks, begin_ns, number, 1, kind, 0)
        at = self.shape.marks_offset + self.marks % self.shape.marks * layout.MARK_SIZE
        layout.MARK.pack_into(self.map, at, body, crc32(body), end_ns, 0)
        self.cells[StatusCell.MARKS] = self.marks
        return self.marks

    def report(self, step: int, name: int, value: float) -> None:
        """Writes a value that the job reports; `name` is the number of a REPORT entry."""
        self.marks += 1
        now = time.monotonic_ns()
        body = layout.MARK_BODY.pack(self.marks, now, step, 1, MarkKind.REPORT, name)
        total = crc32(layout.REPORT_VALUE.pack(value), crc32(body))
        at = self.shape.marks_offset + self.marks % self.shape.marks * layout.MARK_SIZE
        layout.REPORT.pack_into(self.map, at, body, total, now, value)
        self.cells[StatusCell.MARKS] = self.marks
        self.cells[StatusCell.WATCHED] |= 1 << MarkKind.REPORT

    def complete(self, sequence: int) -> None:
        at = self._slot(sequence) + layout.SLOT_DONE
        memoryview(self.map)[at : at + 8].cast("q")[0] = time.monotonic_ns()

    def wait_for(self, sequence: int) -> None:
        """A thread begins to wait for an op."""
        at = self._slot(sequence) + layout.SLOT_WAIT
        memoryview(self.map)[at : at + 8].cast("q")[0] = time.monotonic_ns()

    def _slot(self, sequence: int) -> int:
        return self.shape.slots_offset + (sequence % self.shape.slots) * layout.SLOT_SIZE

    def standard_tables(self) -> None:
        """The tables that `op` refers to: one signature, one call site, one group."""
        self.add_signature(1, "all_reduce", inputs=[1024], outputs=[1024])
        self.add_entry(Side.SITE, 1, ["/srv/train.py", 12, "train"])
        self.add_group(1)
