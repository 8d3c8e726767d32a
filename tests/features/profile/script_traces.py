"""Traces as a script's own torch.profiler writes them, by gloo and by NCCL."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BASE = 1_790_857_026_000_000_000
STEP_US = 20_000.0
FIRST_STEP = 3
STEPS = 4
Event = dict[str, Any]


def document(
    rank: int, events: Sequence[Event], groups: Sequence[str] = ("0",), *, ahead_ns: int = 0,
    **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """What torch 2.13 writes around the events; `more` replaces or, if None, leaves out."""
    configured = [{"pg_name": name, "pg_desc": "", "pg_size": 2} for name in groups]
    job = {"backend": "gloo", "rank": rank, "world_size": 2, "pg_config": configured,
           "pg_count": len(groups)}  # fmt: skip
    found = {
        "schemaVersion": 1, "deviceProperties": [], "distributedInfo": job,
        "host_name": f"node{rank}", "baseTimeNanoseconds": BASE + ahead_ns,
        "traceEvents": events, **more,
    }  # fmt: skip
    return {key: value for key, value in found.items() if value is not None}


def span(name: str, at: float, lasts: float, rank: int, cat: str, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 40 + rank, "tid": 40 + rank, "ts": at,
            "dur": lasts, "args": args}  # fmt: skip


def _steps(rank: int) -> list[Event]:
    pid = 40 + rank
    return [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python"}},
        *(span(f"ProfilerStep#{FIRST_STEP + n}", n * STEP_US, STEP_US, rank, "user_annotation")
          for n in range(STEPS)),
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "",
         "ts": STEPS * STEP_US + 500},
    ]  # fmt: skip


def gloo(rank: int, kinds: Sequence[str] = ("all_reduce", "broadcast", "barrier")) -> list[Event]:
    """Ranks take turns in being last; each op ends 100 µs after the last has begun it."""
    found = _steps(rank)
    for step in range(STEPS):
        for nth, kind in enumerate(kinds):
            ready = step * STEP_US + 2000 + 3000 * nth
            begin = ready if step % 2 == rank else ready - 900
            found += [
                span(f"c10d::{kind}", begin, 20.0, rank, "cpu_op"),
                span(f"gloo:{kind}", begin + 5, ready + 100 - begin, rank, "user_annotation"),
            ]
    # Its end is the recording's, not its own.
    unfinished = {"finished": False} if rank else {}
    last = STEPS * STEP_US - 100
    return [
        *found,
        span("gloo:all_reduce", last, 600, rank, "user_annotation", **unfinished),
    ]


def nccl(rank: int, *, numbers: bool, groups: Sequence[str] = ("0", "1")) -> list[Event]:
    """Kernels that end together, linked to what torch recorded on the host of each."""
    found = _steps(rank)
    external = 100
    for step in range(STEPS):
        for nth, group in enumerate(groups):
            external += 1
            issued = step * STEP_US + 1000 + 100 * nth
            ready = issued + 5000 + 1000 * nth
            begin = ready if step % 2 == rank else ready - 800
            args = {"External id": external, "Collective name": "allreduce",
                    "Process Group Name": group, "Process Group Ranks": "[0, 1]"}  # fmt: skip
            if numbers:
                args["Seq"] = 1000 + step
            kernel = span("ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin, ready + 60 - begin,
                          rank, "kernel", **{"External id": external})  # fmt: skip
            found += [
                {**kernel, "pid": 0, "tid": 20 + nth},
                span("record_param_comms", issued, 50.0, rank, "cpu_op", **args),
            ]
    return found


def write(path: Path, content: dict[str, Any]) -> Path:
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
