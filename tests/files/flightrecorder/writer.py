"""Writes dumps of invented jobs as torch does: the same opcodes, the same JSON."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WALL = 1_758_581_237_000_000_000
MS = 1_000_000


def pickle_like_torch(value: object) -> bytes:
    """Pickles as torch does: a repeated text or line of a stack is a memo reference, no more."""
    out = bytearray(b"\x80\x02")
    _write(value, out, {})
    return bytes(out) + b"."


def _write(value: Any, out: bytearray, memo: dict[str | int, int]) -> None:
    if value is None:
        out += b"N"
    elif isinstance(value, bool):
        out += b"\x88" if value else b"\x89"
    elif isinstance(value, int):
        out += _number(value)
    elif isinstance(value, str):
        _text(value, out, memo)
    elif isinstance(value, dict):
        _dict(value, out, memo)
    elif isinstance(value, tuple):
        for inner in value:
            _write(inner, out, memo)
        out += {1: b"\x85", 2: b"\x86", 3: b"\x87"}[len(value)]
    else:
        out += b"]("
        for inner in value:
            _write(inner, out, memo)
        out += b"e"


def _dict(value: dict[str, Any], out: bytearray, memo: dict[str | int, int]) -> None:
    if id(value) in memo:
        out += _memo(b"hj", memo[id(value)])
        return
    out += b"}("
    for key, inner in value.items():
        _write(key, out, memo)
        _write(inner, out, memo)
    out += b"u"
    if "filename" in value:
        out += _memo(b"qr", memo.setdefault(id(value), len(memo)))


def _number(value: int) -> bytes:
    if 0 <= value < 256:
        return struct.pack("<cB", b"K", value)
    if 0 <= value < 65536:
        return struct.pack("<cH", b"M", value)
    if -(2**31) <= value < 2**31:
        return struct.pack("<ci", b"J", value)
    return struct.pack("<cBq", b"\x8a", 8, value)


def _text(value: str, out: bytearray, memo: dict[str | int, int]) -> None:
    if value in memo:
        out += _memo(b"hj", memo[value])
        return
    data = value.encode()
    out += struct.pack("<cI", b"X", len(data)) + data
    out += _memo(b"qr", memo.setdefault(value, len(memo)))


def _memo(opcodes: bytes, place: int) -> bytes:
    """Puts or gets: the first of the two opcodes has one byte for the place."""
    if place < 256:
        return struct.pack("<BB", opcodes[0], place)
    return struct.pack("<BI", opcodes[1], place)


@dataclass
class FakeRecorder:
    """The recorder of one rank: tests add ops and get a dump."""

    rank: int
    backend: str = "nccl"
    version: str = "2.10"
    clock_ns: int = WALL
    groups: dict[str, dict[str, str]] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    status: dict[str, dict[str, int]] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _p2p: dict[str, int] = field(default_factory=dict)
    _members: dict[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock_ns += 1000 * self.rank  # no two processes issue in the same nanosecond

    def group(self, name: str, members: Sequence[int], description: str = "") -> None:
        self.groups[name] = {"name": name, "desc": description, "ranks": str(list(members))}
        self.status[str(len(self.status))] = dict.fromkeys(
            ("last_enqueued_collective", "last_started_collective", "last_completed_collective"), 0
        )
        self._members[name] = members

    def ran(self, group: str, kind: str = "all_reduce", count: int = 1, **more: Any) -> None:
        """Adds completed collectives."""
        for _ in range(count):
            self._add(group, kind, done=True, p2p=False, more=more)

    def waits(self, group: str, kind: str = "all_reduce", **more: Any) -> None:
        """Adds a collective that was issued and is unfinished."""
        self._add(group, kind, done=False, p2p=False, more=more)

    def p2p(self, group: str, kind: str, peer: int, *, done: bool = False) -> None:
        members = self._members[group]
        arrow = "->" if kind == "send" else "<-"
        name = f"{kind} {members.index(self.rank)}{arrow}{members.index(peer)}"
        self._add(group, name, done=done, p2p=True, more={})

    def _add(
        self, group: str, kind: str, *, done: bool, p2p: bool, more: Mapping[str, Any]
    ) -> None:
        counts = self._p2p if p2p else self._numbers
        counts[group] = counts.get(group, 0) + 1
        number = list(self.groups).index(group)
        status = self.status[str(number)]
        status["last_enqueued_collective"] += 1
        status["last_completed_collective"] += done
        self.clock_ns += MS
        self.entries.append(
            {
                "record_id": len(self.entries),
                "pg_id": number,
                "process_group": (group, self.groups[group]["desc"]),
                "thread_name": "python",
                "thread_id": str(140371916749696 + 4096 * self.rank),
                "collective_seq_id": self._numbers.get(group, 0),
                "p2p_seq_id": self._p2p.get(group, 0),
                "op_id": self._numbers.get(group, 0) + self._p2p.get(group, 0),
                "profiling_name": f"{self.backend}:{kind}",
                "time_created_ns": self.clock_ns,
                "input_sizes": [[1024]],
                "input_dtypes": ["Float"],
                "output_sizes": [[1024]],
                "output_dtypes": ["Float"],
                "state": "completed" if done else "scheduled",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": self.clock_ns + MS // 2 if done else None,
                "retired": done,
                "timeout_ms": 600_000,
                "is_p2p": p2p,
                **more,
            }
        )

    def values(self, *, active: bool = False) -> dict[str, Any]:
        return {
            "version": self.version,
            "pg_config": self.groups,
            "comm_lib_version": "",
            "pg_status": self.status,
            "entries": [e for e in self.entries if not (active and e["retired"])],
        }

    def pickle(self, *, active: bool = False) -> bytes:
        return pickle_like_torch(self.values(active=active))

    def json(self) -> bytes:
        """As torch writes JSON: no frames, 0 for unknown times, counts as text."""
        values = self.values()
        for entry in values["entries"]:
            entry.pop("frames", None)
            entry["time_discovered_started_ns"] = entry["time_discovered_started_ns"] or 0
            entry["time_discovered_completed_ns"] = entry["time_discovered_completed_ns"] or 0
        values["pg_status"] = {
            number: {name: str(count) for name, count in counts.items()}
            for number, counts in values["pg_status"].items()
        }
        if not values["entries"]:
            del values["entries"]
        return json.dumps(values, sort_keys=True).encode()


def make_recorders(size: int, **more: Any) -> list[FakeRecorder]:
    """Recorders of all ranks, each with the default group."""
    ranks = [FakeRecorder(rank, **more) for rank in range(size)]
    for one in ranks:
        one.group("0", range(size), "default_pg")
    return ranks


def one_missing(size: int = 4, culprit: int = 2, **more: Any) -> list[FakeRecorder]:
    """Recorders of a job that waits in all_reduce #21, which the culprit has not entered."""
    ranks = make_recorders(size, **more)
    for one in ranks:
        one.ran("0", count=20)
        if one.rank != culprit:
            one.waits("0")
    return ranks


def write_dumps(
    folder: Path, recorders: Iterable[FakeRecorder], name: str = "nccl_trace_rank_", **how: Any
) -> Path:
    for one in recorders:
        (folder / f"{name}{one.rank}").write_bytes(one.pickle(**how))
    return folder


def make_grid(size: int = 16, stages: int = 2, tensor: int = 4) -> list[FakeRecorder]:
    """Recorders with pipeline, tensor and expert groups, as of a large model."""
    ranks = make_recorders(size)
    half = size // stages
    number = 0
    blocks = [range(start, start + tensor) for start in range(0, size, tensor)]
    experts = [range(stage * half, (stage + 1) * half) for stage in range(stages)]
    pipes = [[base + stage * half for stage in range(stages)] for base in range(half)]
    for label, groups in (("TENSOR", blocks), ("EXPERT", experts), ("PIPELINE", pipes)):
        for members in groups:
            number += 1
            for rank in members:
                ranks[rank].group(str(number), list(members), label)
    return ranks


def group_labelled(recorder: FakeRecorder, label: str) -> str:
    """The name of the recorder's group with that description."""
    return next(name for name, group in recorder.groups.items() if group["desc"] == label)
