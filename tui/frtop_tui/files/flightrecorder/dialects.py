"""Dumps of recorders that differ from c10d's, brought into its form.

torchcomms numbers all ops of a rank with one counter from 0, whatever their group, and its
groups list group ranks. It and the profiler's recorder do not mark sends and receives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_P2P_NAME: Final = re.compile(r"(?:[^:\s]*:)?(?:i?send|i?recv)(?:\s|$)", re.ASCII)


def shares_one_counter(values: Mapping[str, Any], entries: Sequence[Any]) -> bool:
    """Whether all groups share one counter: only torchcomms writes ops and an empty status."""
    return bool(entries) and values.get("pg_status") == {} and bool(values.get("pg_config"))


def mark_p2p(entries: list[Any], newest: int) -> list[Any]:
    """Marks sends and receives in all entries if any of the `newest` ones lacks its mark."""
    if not any(_is_unmarked(entry) for entry in entries[-newest:]):
        return entries
    return [{**one, "is_p2p": True} if _is_unmarked(one) else one for one in entries]


def renumber(entries: list[Any]) -> tuple[list[Any], bool]:
    """Numbers the ops of each group from 1.

    Returns:
        The entries, and whether their numbers begin with the group. They do if no entry is
        missing. Otherwise the shared counter stays, which is right if there is one group.
    """
    known = [entry for entry in entries if isinstance(entry, dict)]
    is_complete = bool(known) and known[0].get("record_id") == 0
    is_complete = is_complete and known[-1].get("record_id") == len(known) - 1
    counts: dict[Any, int] = {}
    made = []
    for entry in known:
        number = entry.get("collective_seq_id")
        group = entry.get("pg_id")
        if is_complete and type(group) is int:
            counts[group] = number = counts.get(group, 0) + (entry.get("is_p2p") is not True)
        elif type(number) is int:
            number += 1
        made.append({**entry, "collective_seq_id": number})
    groups = {group if type(group := entry.get("pg_id")) is int else None for entry in known}
    return made, is_complete or len(groups) == 1


def _is_unmarked(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("is_p2p") is True:
        return False
    name = entry.get("profiling_name")
    return isinstance(name, str) and _P2P_NAME.match(name) is not None
