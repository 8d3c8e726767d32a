"""Builds rings from the layout alone, so that the agent is tested without the recorder."""

from __future__ import annotations

import json
import mmap
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frtop_probe.procfs import processes
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Event, Flag, Shape, Side, State, StatusCell


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
        with draft.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), shape.size)
        values: Mapping[str, Any] = {
            "start_ticks": start_ticks,
            "namespace": pid_namespace() if namespace is None else namespace,
            "boot": boot() if boot_id is None else boot_id,
        }
        layout.HEADER.pack_into(
            self.map, 0, layout.MAGIC, layout.VERSION, shape.size, values["start_ticks"],
            values["namespace"], values["boot"], time.monotonic_ns(), time.time_ns(), self.pid, 0,
            1, *([0] * (len(layout.HEADER.unpack(bytes(layout.HEADER.size))) - 17)),
            shape.groups, shape.sites, shape.overflow, shape.slots, shape.side, 0,
        )  # fmt: skip
        self.cells = memoryview(self.map)[layout.CELLS_OFFSET : layout.GROUPS_OFFSET].cast("q")
        self.used = 0
        self.sequence = 0
        self.numbers: dict[int, int] = {}
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
        self.beat()
        draft.rename(self.path)

    def beat(self) -> None:
        self.cells[StatusCell.BEAT_NS] = time.monotonic_ns()
        self.cells[StatusCell.BEATS] += 1

    def add_entry(self, kind: Side, number: int, payload: object) -> None:
        text = json.dumps(payload).encode()
        padding = -len(text) % 8
        at = self.shape.side_offset + self.used
        layout.SIDE_ENTRY.pack_into(self.map, at, len(text), kind, padding, number)
        start = at + layout.SIDE_ENTRY.size
        self.map[start : start + len(text)] = text
        self.used += layout.SIDE_ENTRY.size + len(text) + padding
        self.cells[StatusCell.SIDE_USED] = self.used

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
        layout.SLOT.pack_into(
            self.map, self._slot(self.sequence), self.sequence, issued, issued if done else 0,
            number, 1, group, signature, site, 0, flags, 1, Event.OP, 0, self.sequence,
        )  # fmt: skip
        self.cells[StatusCell.HEAD] = self.sequence
        self.cells[StatusCell.OPS] += 1
        at = layout.GROUPS_OFFSET + group * layout.GROUP_ROW.size
        row = (self.sequence, number, 0, self.sequence, issued, signature, site, self.sequence)
        layout.GROUP_ROW.pack_into(self.map, at, *row)
        return self.sequence

    def pseudo(self, kind: str) -> int:
        """Begins a call that makes groups; returns its sequence number."""
        self.sequence += 1
        self.add_entry(Side.SIGNATURE, 100, {"kind": kind})
        layout.SLOT.pack_into(
            self.map, self._slot(self.sequence), self.sequence, time.monotonic_ns(), 0,
            1, 1, layout.NO_GROUP, 100, 0, 0, Flag.SYNC, 0, Event.PSEUDO, 0, self.sequence,
        )  # fmt: skip
        self.cells[StatusCell.HEAD] = self.sequence
        return self.sequence

    def complete(self, sequence: int) -> None:
        at = self._slot(sequence) + layout.SLOT_DONE
        memoryview(self.map)[at : at + 8].cast("q")[0] = time.monotonic_ns()

    def _slot(self, sequence: int) -> int:
        return self.shape.slots_offset + (sequence % self.shape.slots) * layout.SLOT_SIZE

    def standard_tables(self) -> None:
        """The tables that `op` refers to: one signature, one call site, one group."""
        self.add_entry(
            Side.SIGNATURE,
            1,
            {
                "kind": "all_reduce",
                "inputs": [["float32", [1024], 1, "cpu"]],
                "outputs": [["float32", [1024], 1, "cpu"]],
            },
        )
        self.add_entry(Side.SITE, 1, ["/srv/train.py", 12, "train"])
        self.add_group(1)
