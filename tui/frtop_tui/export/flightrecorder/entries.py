"""One dump in our own words, whatever version and backend wrote it.

Versions say nothing: what is there is told by its keys. Nothing of it is trusted: a value of
another type than it should have is one that is not known. Of thousands of entries only the
newest, those that are not done, and each group's last are looked at closely.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.errors import Unreadable
from frtop_tui.export.flightrecorder.dialects import counts_once, marked, recounted
from frtop_tui.export.flightrecorder.pages import KEYS
from frtop_tui.job.printable import printable

Entry = Mapping[str, Any]

MOST_ENTRIES: Final = 400_000
MOST_PENDING: Final = 4096
_LARGEST: Final = 2**62
_LONGEST: Final = 1 << 20
_MOST_MEMBERS: Final = 4 * MAX_RANKS
"""In all groups together: a short file may tell of the same long list thousands of times."""
_NUMBERS: Final = re.compile(r"\d{1,7}", re.ASCII)
_PROFILING: Final = re.compile(
    r"(?:(?P<backend>[^:\s]*):)?(?P<kind>\S+)"
    r"(?:\s+(?P<own>\d+)\s*(?P<way>->|<-)\s*(?P<other>\d+|\?))?",
    re.ASCII,
)
_LOST: Final = "copy the file again from where it was written, or leave it out"


@dataclass(frozen=True, slots=True)
class Called:
    """What an entry is called: `nccl:send 0->1`. Sides are places in the group."""

    backend: str
    kind: str
    own: int | None = None
    other: int | None = None


@dataclass(frozen=True, slots=True)
class Members:
    """A group as a dump's configuration tells of it. `ranks` is empty when it does not."""

    description: str
    ranks: tuple[int, ...]


@dataclass(slots=True)
class Dump:
    """What one file tells.

    `kept` are the newest entries and those that are not done, oldest first; `lasts` the
    newest collective of each group, or else send or receive, by the process's own number
    for the group; `status` how many ops were issued and completed there, if that is told.
    """

    path: Path
    version: str
    groups: dict[str, Members]
    kept: list[Entry]
    pending: list[Entry]
    lasts: dict[int, Entry]
    status: dict[int, tuple[int, int]]
    names: dict[int, str] = field(default_factory=dict)  # of groups, by the process's number
    sends: set[str] = field(default_factory=set)  # names of groups with sends and receives
    possible: frozenset[int] | None = None  # ranks that it may be of
    exact: bool = True  # numbers are counted from the creation of groups
    placed: bool = False  # groups list places in them, not ranks

    @property
    def newest(self) -> int:
        """Number of the last entry in the order of recording; -1 for none."""
        return whole(self.kept[-1].get("record_id", -1)) if self.kept else -1


def dump_of(path: Path, values: Any, keep: int) -> Dump:
    """Reads the values of a file as a dump; of its entries the newest `keep` are kept.

    Raises:
        Unreadable: they are none.
    """
    if isinstance(values, list):  # torch up to 2.2 wrote the entries alone
        values = {"entries": values}
    if not isinstance(values, dict) or KEYS.isdisjoint(values):
        raise Unreadable(f"{path} is no dump of the Flight Recorder", _LOST)
    entries = values.get("entries") or []
    if not isinstance(entries, list) or len(entries) > MOST_ENTRIES:
        raise Unreadable(f"{path} has no list of entries that makes sense", _LOST)
    entries, exact = marked(entries, keep), True
    if placed := counts_once(values, entries):
        entries, exact = recounted(entries)
    try:
        pending, lasts = _sifted(entries)
    except (TypeError, AttributeError):
        entries = [_orderly(entry) for entry in entries if isinstance(entry, dict)]
        pending, lasts = _sifted(entries)
    dump = Dump(
        path=path,
        version=word(values.get("version")),
        groups=_groups(values.get("pg_config")),
        kept=_kept(entries, pending[:MOST_PENDING], keep),
        pending=pending[:MOST_PENDING],
        lasts={number: lasts[number, p2p] for number, p2p in sorted(lasts, reverse=True)},
        status=_status(values.get("pg_status")),
        exact=exact,
        placed=placed,
    )
    for (number, p2p), entry in lasts.items():
        name = group_of(entry)[0]
        dump.names[number] = name
        if p2p:
            dump.sends.add(name)
    if not placed:
        dump.possible = _possible(dump, (entry for (_, p2p), entry in lasts.items() if p2p))
    _name_the_rest(dump)
    return dump


def whole(value: object) -> int:
    """A number that is not negative, also one that JSON has as text; 0 for anything else."""
    if type(value) is int:
        return value if 0 <= value < _LARGEST else 0
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return whole(int(value))
    return 0


def word(value: object, most: int = 200) -> str:
    return printable(value[:most]) if isinstance(value, str) else ""


def called(entry: Entry) -> Called:
    """Its backend, kind, and for a send or receive who with whom."""
    found = _PROFILING.fullmatch(word(entry.get("profiling_name")).strip())
    if found is None:
        return Called("", word(entry.get("profiling_name")) or "an op")
    if found["way"] is None:
        return Called(found["backend"] or "", found["kind"])
    other = int(found["other"]) if found["other"] != "?" else None
    return Called(found["backend"] or "", found["kind"], int(found["own"]), other)


def group_of(entry: Entry) -> tuple[str, str]:
    """Name and description of its group."""
    pair = entry.get("process_group")
    if isinstance(pair, (list, tuple)) and pair:
        return word(pair[0]), word(pair[1]) if len(pair) > 1 else ""
    return word(entry.get("pg_name")) or str(whole(entry.get("pg_id"))), ""


def number_of(entry: Entry) -> int:
    """Its place among the collectives of its group, or among its sends and receives."""
    if is_p2p(entry):
        return whole(entry.get("p2p_seq_id"))
    return whole(entry.get("collective_seq_id", entry.get("seq_id")))


def is_p2p(entry: Entry) -> bool:
    return entry.get("is_p2p") is True


def moment(entry: Entry, name: str) -> int:
    """A time of it, in ns of the wall clock; 0 when it is not told."""
    found = whole(entry.get(f"time_{name}_ns"))
    return found or 1000 * whole(entry.get(f"time_{name}_us")) % _LARGEST


def _sifted(entries: Sequence[Entry]) -> tuple[list[Entry], dict[tuple[int, bool], Entry]]:
    """What is not done, and each group's last; two passes that cost 0.2 µs an entry."""
    pending = [e for e in entries if not e.get("retired") and e.get("state") != "completed"]
    given_up = [e for e in entries if e.get("retired") and e.get("state") == "started"]
    lasts = {(e.get("pg_id", 0), e.get("is_p2p") is True): e for e in entries}
    if given_up:
        # A kernel that was seen to start, never to end, and was then let go of.
        known = set(map(id, (*pending, *given_up)))
        pending = [e for e in entries if id(e) in known]
    if not all(type(number) is int for number, _ in lasts):
        raise TypeError
    return pending, lasts


def _orderly(entry: Entry) -> Entry:
    """The same entry with a number for its group, whatever stood there."""
    return {**entry, "pg_id": whole(entry.get("pg_id"))}


def _kept(entries: Sequence[Entry], pending: Sequence[Entry], keep: int) -> list[Entry]:
    newest = list(entries[-keep:])
    there = set(map(id, newest))
    return [*(entry for entry in pending if id(entry) not in there), *newest]


def _groups(config: object) -> dict[str, Members]:
    """Groups by name. gloo's recorder knows no names: what it says there is of any group."""
    found: dict[str, Members] = {}
    room = _MOST_MEMBERS
    for key, told in config.items() if isinstance(config, dict) else ():
        if (name := word(key)) and isinstance(told, dict):
            ranks = tuple(dict.fromkeys(_ranks(told.get("ranks"))))
            room -= len(ranks) + 1
            if room < 0:
                break
            found[name] = Members(word(told.get("desc")), ranks)
    return found


_known_ranks: dict[str, tuple[int, ...]] = {}


def _ranks(told: object) -> tuple[int, ...]:
    """`"[0, 4]"`, or a list of numbers."""
    if isinstance(told, list):
        return tuple(r for r in told[:MAX_RANKS] if type(r) is int and 0 <= r < MAX_RANKS)
    if not isinstance(told, str) or len(told) > _LONGEST:
        return ()
    known = _known_ranks.get(told)
    if known is None:
        if len(_known_ranks) > 4096:
            _known_ranks.clear()
        ranks = tuple(int(text) for text in _NUMBERS.findall(told))
        known = _known_ranks[told] = ranks if all(r < MAX_RANKS for r in ranks) else ()
    return known


def _status(told: object) -> dict[int, tuple[int, int]]:
    if not isinstance(told, dict):
        return {}
    found: dict[int, tuple[int, int]] = {}
    for number, counts in told.items():
        short = number if type(number) is int and 0 <= number < 10**9 else word(number, 10)
        if isinstance(counts, dict) and _NUMBERS.fullmatch(str(short)):
            found[int(short)] = (
                whole(counts.get("last_enqueued_collective")),
                whole(counts.get("last_completed_collective")),
            )
    return found


def _possible(dump: Dump, p2p: Iterable[Entry]) -> frozenset[int] | None:
    """Ranks that are in all of its groups, and where its sends say they come from."""
    inside = [frozenset(told.ranks) for told in dump.groups.values() if told.ranks]
    found = frozenset.intersection(*inside) if inside else None
    for entry in p2p:
        members, own = dump.groups.get(group_of(entry)[0]), called(entry).own
        if members is not None and own is not None and own < len(members.ranks):
            rank = frozenset((members.ranks[own],))
            found = rank if found is None else found & rank
    return found or None


def _name_the_rest(dump: Dump) -> None:
    """Names for groups of which there is a status, but no entry any more.

    Both numbers count groups in the order in which they were made; names of other groups
    need not be numbers, and then nothing is concluded.
    """
    if len(dump.status) != len(dump.groups) or not all(map(_NUMBERS.fullmatch, dump.groups)):
        return
    names = sorted(dump.groups, key=int)
    by_order = dict(zip(sorted(dump.status), names, strict=True))
    if all(by_order.get(number) == name for number, name in dump.names.items()):
        dump.names = by_order
