"""One dump in our own terms, whatever version, backend and recorder wrote it.

The keys of a dump show what it contains; its version does not. Of thousands of entries, we read
three kinds closely: the newest, the unfinished, and the last of each group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.errors import Unreadable
from frtop_tui.files.flightrecorder.bundle import KEYS
from frtop_tui.files.flightrecorder.fields import (
    Entry,
    as_count,
    as_text,
    group_name,
    profiling_name,
)

MAX_ENTRIES: Final = 400_000
MAX_UNFINISHED: Final = 4096
_MAX_RANKS_TEXT: Final = 1 << 20
_MAX_MEMBERS: Final = 4 * MAX_RANKS
"""Most members in all groups of a dump: a small file may repeat one long list thousands of
times."""
_MAX_CACHED_TEXTS: Final = 4096
_P2P_NAME: Final = re.compile(r"(?:[^:\s]*:)?(?:i?send|i?recv)(?:\s|$)", re.ASCII)
_NUMBERS: Final = re.compile(r"\d{1,7}", re.ASCII)
_NEXT: Final = "copy the file again from where it was written, or leave it out"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group as `pg_config` describes it. `ranks` is empty if it does not list them."""

    description: str
    ranks: tuple[int, ...]


@dataclass(slots=True)
class Dump:
    """What one dump file says about one rank.

    `recent` has the newest and the unfinished entries, oldest first. `last_entries` has the newest
    collective of each group (or else its newest send or receive) by the process's own number for
    the group; `status` has the counts of ops issued and completed there.
    """

    path: Path
    version: str
    groups: dict[str, GroupConfig]
    recent: list[Entry]
    pending: list[Entry]
    last_entries: dict[int, Entry]
    status: dict[int, tuple[int, int]]
    group_names: dict[int, str] = field(default_factory=dict)  # by the process's own number
    p2p_groups: set[str] = field(default_factory=set)  # names of groups with sends and receives
    possible_ranks: frozenset[int] | None = None  # which ranks may have written it; None: any
    exact: bool = True  # numbers are counted from the creation of groups
    lists_group_ranks: bool = False  # `GroupConfig.ranks` are group ranks, not global ones

    @property
    def newest_id(self) -> int:
        """Number of the last entry in the order of recording; -1 if there is none."""
        return as_count(self.recent[-1].get("record_id", -1)) if self.recent else -1


def parse_dump(path: Path, values: Any, keep: int) -> Dump:
    """Reads the plain values of a file as a dump; reads `keep` of the newest entries closely.

    Raises:
        Unreadable: the values are not a dump.
    """
    if not isinstance(values, dict) or KEYS.isdisjoint(values):
        raise Unreadable(f"{path} is not a Flight Recorder dump", _NEXT)
    entries = values.get("entries") or []
    if not isinstance(entries, list) or len(entries) > MAX_ENTRIES:
        raise Unreadable(f"{path} is damaged: its `entries` are not a list of entries", _NEXT)
    entries, exact = _mark_p2p(entries, keep), True
    if lists_group_ranks := _shares_one_counter(values, entries):
        entries, exact = _renumber(entries)
    try:
        pending, lasts = _sort(entries)
    except (TypeError, AttributeError):
        entries = [_with_group_number(entry) for entry in entries if isinstance(entry, dict)]
        pending, lasts = _sort(entries)
    dump = Dump(
        path=path,
        version=as_text(values.get("version")),
        groups=_groups(values.get("pg_config")),
        recent=_recent(entries, pending[:MAX_UNFINISHED], keep),
        pending=pending[:MAX_UNFINISHED],
        last_entries={number: lasts[number, p2p] for number, p2p in sorted(lasts, reverse=True)},
        status=_status(values.get("pg_status")),
        exact=exact,
        lists_group_ranks=lists_group_ranks,
    )
    for (number, p2p), entry in lasts.items():
        name = group_name(entry)[0]
        dump.group_names[number] = name
        if p2p:
            dump.p2p_groups.add(name)
    if not lists_group_ranks:
        last_p2p = (entry for (_, p2p), entry in lasts.items() if p2p)
        dump.possible_ranks = _possible_ranks(dump, last_p2p)
    _infer_group_names(dump)
    return dump


def _shares_one_counter(values: Mapping[str, Any], entries: Sequence[Any]) -> bool:
    """Whether all groups share one counter, as in torchcomms: only it writes an empty status.

    Its groups also list group ranks.
    """
    return bool(entries) and values.get("pg_status") == {} and bool(values.get("pg_config"))


def _mark_p2p(entries: list[Any], newest: int) -> list[Any]:
    """Marks sends and receives in all entries if one of the `newest` lacks its mark.

    Other recorders than c10d's, those of torchcomms and the profiler, do not mark them.
    """
    if not any(_is_unmarked(entry) for entry in entries[-newest:]):
        return entries
    return [{**one, "is_p2p": True} if _is_unmarked(one) else one for one in entries]


def _renumber(entries: list[Any]) -> tuple[list[Any], bool]:
    """Numbers the ops of each group from 1 if one counter from 0 numbers all ops of the rank.

    Returns:
        The entries, and whether numbers begin with the group. They do if no entry is missing.
        Otherwise the shared counter stays, which is right if there is one group.
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


def _sort(entries: Sequence[Entry]) -> tuple[list[Entry], dict[tuple[int, bool], Entry]]:
    """The unfinished entries, and the last one of each group: two passes, 0.2 µs an entry."""
    pending = [e for e in entries if not e.get("retired") and e.get("state") != "completed"]
    abandoned = [e for e in entries if e.get("retired") and e.get("state") == "started"]
    lasts = {(e.get("pg_id", 0), e.get("is_p2p") is True): e for e in entries}
    if abandoned:
        # The recorder saw the kernel start but never end, then dropped the op.
        known = set(map(id, (*pending, *abandoned)))
        pending = [e for e in entries if id(e) in known]
    if not all(type(number) is int for number, _ in lasts):
        raise TypeError
    return pending, lasts


def _with_group_number(entry: Entry) -> Entry:
    """The same entry with a valid number of its group."""
    return {**entry, "pg_id": as_count(entry.get("pg_id"))}


def _recent(entries: Sequence[Entry], pending: Sequence[Entry], keep: int) -> list[Entry]:
    newest = list(entries[-keep:])
    there = set(map(id, newest))
    return [*(entry for entry in pending if id(entry) not in there), *newest]


def _groups(config: object) -> dict[str, GroupConfig]:
    """Groups by name. gloo's recorder has no names: its one group may be any group."""
    found: dict[str, GroupConfig] = {}
    room = _MAX_MEMBERS
    for key, group in config.items() if isinstance(config, dict) else ():
        if (name := as_text(key)) and isinstance(group, dict):
            ranks = tuple(dict.fromkeys(_ranks(group.get("ranks"))))
            room -= len(ranks) + 1
            if room < 0:
                break
            found[name] = GroupConfig(as_text(group.get("desc")), ranks)
    return found


_parsed_ranks: dict[str, tuple[int, ...]] = {}


def _ranks(value: object) -> tuple[int, ...]:
    """Ranks from a text such as `"[0, 4]"`, or from a list of numbers."""
    if isinstance(value, list):
        return tuple(r for r in value[:MAX_RANKS] if type(r) is int and 0 <= r < MAX_RANKS)
    if not isinstance(value, str) or len(value) > _MAX_RANKS_TEXT:
        return ()
    known = _parsed_ranks.get(value)
    if known is None:
        if len(_parsed_ranks) > _MAX_CACHED_TEXTS:
            _parsed_ranks.clear()
        ranks = tuple(int(text) for text in _NUMBERS.findall(value))
        known = _parsed_ranks[value] = ranks if all(r < MAX_RANKS for r in ranks) else ()
    return known


def _status(value: object) -> dict[int, tuple[int, int]]:
    """How many ops were issued and completed, by the process's number for a group."""
    if not isinstance(value, dict):
        return {}
    found: dict[int, tuple[int, int]] = {}
    for number, counts in value.items():
        short = number if type(number) is int and 0 <= number < 10**9 else as_text(number, 10)
        if isinstance(counts, dict) and _NUMBERS.fullmatch(str(short)):
            found[int(short)] = (
                as_count(counts.get("last_enqueued_collective")),
                as_count(counts.get("last_completed_collective")),
            )
    return found


def _possible_ranks(dump: Dump, p2p: Iterable[Entry]) -> frozenset[int] | None:
    """The ranks in all groups of the dump and at this end of its sends."""
    members = [frozenset(group.ranks) for group in dump.groups.values() if group.ranks]
    found = frozenset.intersection(*members) if members else None
    for entry in p2p:
        group, own = dump.groups.get(group_name(entry)[0]), profiling_name(entry).own
        if group is not None and own is not None and own < len(group.ranks):
            rank = frozenset((group.ranks[own],))
            found = rank if found is None else found & rank
    return found or None


def _infer_group_names(dump: Dump) -> None:
    """Names the groups that have a status but no entry.

    The numbers in `pg_status` and the names in `pg_config` both follow the order of the groups'
    creation. If a name is not a number, nothing is inferred.
    """
    if len(dump.status) != len(dump.groups) or not all(map(_NUMBERS.fullmatch, dump.groups)):
        return
    names = sorted(dump.groups, key=int)
    by_order = dict(zip(sorted(dump.status), names, strict=True))
    if all(by_order.get(number) == name for number, name in dump.group_names.items()):
        dump.group_names = by_order
