"""What some writers say in their own way, in the words of all others.

torchcomms counts all ops of a rank in one row, from 0, whatever their group, and its groups
list places instead of ranks. It and the profiler's recorder do not mark sends and receives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_SENDS: Final = re.compile(r"(?:[^:\s]*:)?(?:i?send|i?recv)(?:\s|$)", re.ASCII)


def counts_once(values: Mapping[str, Any], entries: Sequence[Any]) -> bool:
    """Whether one row of numbers serves all groups: only this writer has ops and no status."""
    return bool(entries) and values.get("pg_status") == {} and bool(values.get("pg_config"))


def marked(entries: list[Any], newest: int) -> list[Any]:
    """The same with sends and receives marked, where the newest ones show that they are not."""
    if not any(_is_unmarked(entry) for entry in entries[-newest:]):
        return entries
    return [{**one, "is_p2p": True} if _is_unmarked(one) else one for one in entries]


def recounted(entries: list[Any]) -> tuple[list[Any], bool]:
    """Numbers of each group's own, from 1; and whether they begin with the group.

    They do where no entry is missing. Else the rank's row of numbers stays: as long as
    there is one group it counts the same.
    """
    known = [entry for entry in entries if isinstance(entry, dict)]
    whole = bool(known) and known[0].get("record_id") == 0
    whole = whole and known[-1].get("record_id") == len(known) - 1
    counts: dict[Any, int] = {}
    made = []
    for entry in known:
        number = entry.get("collective_seq_id")
        group = entry.get("pg_id")
        if whole and type(group) is int:
            counts[group] = number = counts.get(group, 0) + (entry.get("is_p2p") is not True)
        elif type(number) is int:
            number += 1
        made.append({**entry, "collective_seq_id": number})
    groups = {group if type(group := entry.get("pg_id")) is int else None for entry in known}
    return made, whole or len(groups) == 1


def _is_unmarked(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("is_p2p") is True:
        return False
    name = entry.get("profiling_name")
    return isinstance(name, str) and _SENDS.match(name) is not None
