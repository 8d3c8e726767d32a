"""What the Flight Recorder's status of a group shows in a hang. Pure, so saved dumps work, too."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_FIELDS: Final = (
    "last_enqueued_collective",
    "last_started_collective",
    "last_completed_collective",
)


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The last op of a group that was enqueued, started and completed; -1 for none."""

    enqueued: int
    started: int
    completed: int


def parse(dump: bytes) -> dict[str, GroupStatus]:
    """Returns the status of each group in a dump, by the key that torch gives it.

    Raises:
        ValueError: the dump does not have the expected form.
    """
    found = json.loads(dump).get("pg_status")
    if not isinstance(found, dict):
        raise ValueError("no pg_status")  # noqa: TRY004 - of a dump, not of a call
    try:
        return {
            str(key): GroupStatus(*(int(one[name]) for name in _FIELDS))
            for key, one in found.items()
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"pg_status without {error}") from error


def default_group(statuses: dict[str, GroupStatus]) -> GroupStatus | None:
    """Returns the status of the group with the most ops: in these jobs, the default group."""
    return max(statuses.values(), key=lambda one: one.enqueued, default=None)


def mistake(rank: int, before: Sequence[int], during: Sequence[int], *, absent: bool) -> str:
    """Returns what is unexpected about a rank's status in a hang, "" if nothing is.

    Args:
        rank: the rank.
        before: enqueued, started and completed before the op that hangs.
        during: the same while it hangs.
        absent: this rank has not entered the op.
    """
    ahead = during[0] - before[0]
    wanted = 0 if absent else 1
    if ahead != wanted:
        return f"rank {rank}: enqueued moved by {ahead}, not {wanted}"
    if during[2] != before[0]:
        return f"rank {rank}: completed is {during[2]}, not {before[0]}"
    return ""


def summary_us(times_ns: Sequence[int]) -> dict[str, float]:
    """Returns median, 99th percentile and maximum in µs."""
    ordered = sorted(times_ns)
    return {
        "median_us": round(statistics.median(ordered) / 1e3, 2),
        "p99_us": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1e3, 2),
        "max_us": round(ordered[-1] / 1e3, 2),
        "looks": len(ordered),
    }


def entries_of(dump: bytes) -> dict[str, Any]:
    """Returns how many entries a full dump has, how many are not retired, and its last one."""
    entries = json.loads(dump).get("entries") or []
    last = entries[-1] if entries else {}
    keys = ("profiling_name", "state", "retired", "collective_seq_id", "record_id")
    return {
        "entries": len(entries),
        "unretired": sum(not entry.get("retired") for entry in entries),
        "last": {key: last.get(key) for key in keys},
    }
