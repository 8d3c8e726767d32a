"""Fields of a dump's entries, checked: a value of an unexpected type counts as unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frtop_probe.consistency.profiling_names import ProfilingName, parse
from frtop_tui.job.naming import printable

Entry = Mapping[str, Any]

LARGEST: Final = 2**62


def as_count(value: object) -> int:
    """A non-negative number, even if JSON has it as text; 0 for anything else."""
    if type(value) is int:
        return value if 0 <= value < LARGEST else 0
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return as_count(int(value))
    return 0


def as_text(value: object, most: int = 200) -> str:
    """A printable text, cut after `most` characters; "" for anything else."""
    return printable(value[:most]) if isinstance(value, str) else ""


def profiling_name(entry: Entry) -> ProfilingName:
    """Backend and kind of an entry, and, for a send or receive, both group ranks."""
    return parse(as_text(entry.get("profiling_name")))


def group_name(entry: Entry) -> tuple[str, str]:
    pair = entry.get("process_group")
    if isinstance(pair, (list, tuple)) and pair:
        return as_text(pair[0]), as_text(pair[1]) if len(pair) > 1 else ""
    return str(as_count(entry.get("pg_id"))), ""


def sequence_number(entry: Entry) -> int:
    """The number among the collectives of the group, or among its sends and receives."""
    if is_p2p(entry):
        return as_count(entry.get("p2p_seq_id"))
    return as_count(entry.get("collective_seq_id"))


def record_id(entry: Entry) -> int:
    """The number in the order of recording, across all groups of the process."""
    return as_count(entry.get("record_id"))


def is_p2p(entry: Entry) -> bool:
    return entry.get("is_p2p") is True


def time_ns(entry: Entry, name: str) -> int:
    """One of an entry's times, in ns of the wall clock; 0 if unknown."""
    return as_count(entry.get(f"time_{name}_ns"))
