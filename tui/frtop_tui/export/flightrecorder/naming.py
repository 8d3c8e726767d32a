"""Which rank a file is of: dumps do not say, so their names and their content have to.

    nccl_trace_rank_3   comm_lib_trace_rank_3   _dump_3   dump-node02_3   rank3.json
    rank_3.pyspy.json   nccl_trace_rank_3_20250922_224717

A number right behind `rank` counts, else the one that a name ends in; unless two files have
the same, or the groups that the dump itself tells of do not have that rank: then it was a
number on its host, say. What stands there for a time does not count, nor a local rank beside
another. Where names are of another kind, people say how they are made (`RankPattern`).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import Struct

from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.errors import UsageError
from frtop_tui.job.naming import listed
from frtop_tui.job.printable import printable

_ENDINGS: Final = (".json", ".pkl", ".pickle", ".bin", ".trace", ".dump", ".pyspy", ".html")
_LAST: Final = re.compile(r"^(.*?)(?<!\d)(\d{1,7})$", re.ASCII | re.DOTALL)
_RANK: Final = re.compile(r"^(.*rank[_-]?)(\d{1,7})(?!\d)(.*)$", re.ASCII | re.DOTALL)
_LOCAL: Final = re.compile(r"[._-]?local[._-]?rank[._-]?\d+", re.ASCII)
_TIME: Final = re.compile(
    r"[._@-](?:\d{9,19}|\d{8}[T._-]?\d{6}Z?|\d{4}-\d\d-\d\d[T._ -]\d\d[:._-]?\d\d[:._-]?\d\d)$",
    re.ASCII,
)
_USUAL: Final = re.compile(
    r"(?<![a-z0-9])(?:nccl|nccl2|comm_lib|gloo|fr|flight_recorder|trace|dump|rank|json|pyspy)"
    r"(?![a-z0-9])",
    re.ASCII,
)
HOW: Final = (
    "name each file for its rank (nccl_trace_rank_0, nccl_trace_rank_1, ...), or say how they"
    " are named: --ranks-from 'host*_gpu{rank}'"
)


@dataclass(frozen=True, slots=True)
class Named:
    """What a name alone tells: a number, if it has one, and perhaps a host."""

    number: int | None
    host: str = ""


class RankPattern:
    """How files are named: `{rank}` stands for its number, `*` for any text in a name.

    With slashes folders count, too: `rank{rank}/trace.json`.
    """

    def __init__(self, text: str) -> None:
        """Reads the pattern.

        Raises:
            UsageError: it does not say where the rank is.
        """
        if text.count("{rank}") != 1 or not text.strip("/"):
            raise UsageError(
                f"{text!r} does not tell where in a name the rank is",
                "write {rank} there, once: --ranks-from 'host*_gpu{rank}'",
            )
        self.text = text
        self._depth = text.count("/") + 1
        before, after = map(_any_for_stars, text.split("{rank}"))
        self._names = re.compile(rf"{before}(?P<rank>\d{{1,7}})(?!\d){after}", re.ASCII)

    def number(self, path: Path) -> int | None:
        found = self._names.fullmatch("/".join(path.absolute().parts[-self._depth :]))
        return int(found["rank"]) if found is not None else None


def _any_for_stars(text: str) -> str:
    return "[^/]*?".join(map(re.escape, text.split("*")))


def pattern_of(text: str | None) -> RankPattern | None:
    """What `--ranks-from` says. Raises `UsageError` where it makes no sense."""
    return RankPattern(text) if text is not None else None


def named(path: Path, pattern: RankPattern | None = None) -> Named:
    """`nccl_trace_rank_container-node02_5` is number 5, on `container-node02`."""
    if pattern is not None:
        return Named(pattern.number(path))
    stem = path.name
    while stem.endswith(_ENDINGS):
        stem = stem.rpartition(".")[0]
    stem = _TIME.sub("", stem)
    inside = _RANK.match(_LOCAL.sub("", stem)) or _RANK.match(stem)
    if inside is not None:
        return Named(int(inside[2]), _rest(f"{inside[1]} {inside[3]}"))
    found = _LAST.match(stem)
    return Named(int(found[2]), _rest(found[1])) if found is not None else Named(None)


def _rest(text: str) -> str:
    """What is left of a name without what is in all of them: a host, mostly."""
    spaced = printable(text).replace("_", " ").replace("comm lib", "comm_lib")
    return "_".join(_USUAL.sub("", spaced).split()).strip("-.@")


class Claim(Struct, frozen=True):
    """One dump: its name, and the ranks that its own groups leave possible (None: any).

    `signs` are what only dumps of one process share. `told` is the rank where a page says it.
    """

    path: Path
    name: Named
    possible: frozenset[int] | None
    signs: frozenset[Hashable] = frozenset()
    told: int | None = None


def ranks_of(claims: Sequence[Claim]) -> tuple[list[int | None], list[str]]:
    """The rank of each, None where it cannot be told; and what to say about those.

    Two files of one name but for its ending, or its first word, are of one rank: torch
    keeps a recorder for each backend. So are those of different places, folders or hosts,
    if any that have the same number there were written by one process.
    """
    numbers = [_number(claim) for claim in claims]
    places: dict[int, dict[tuple[Path, str], list[Claim]]] = {}
    for claim, number in zip(claims, numbers, strict=True):
        if number is not None and claim.told is None:
            here = (claim.path.parent, claim.name.host)
            places.setdefault(number, {}).setdefault(here, []).append(claim)
    alike = _alike(places)
    single = {
        number
        for number, held in places.items()
        if len({alike.get(place, place) for place in held}) == 1
    }
    ranks: list[int | None] = []
    for claim, number in zip(claims, numbers, strict=True):
        if claim.told is not None or number in single:
            ranks.append(number)
        else:
            only = claim.possible if claim.possible and len(claim.possible) == 1 else ()
            ranks.append(next(iter(only), None))
    unknown = [c.path.name for c, rank in zip(claims, ranks, strict=True) if rank is None]
    notes = [f"whose dumps {listed(unknown)} are cannot be told: {HOW}"] if unknown else []
    return ranks, notes


_Place = tuple[Path, str]


def _alike(places: dict[int, dict[_Place, list[Claim]]]) -> dict[_Place, _Place]:
    """For each place the first one that holds the same ranks at another moment."""
    first: dict[_Place, _Place] = {}
    for held in places.values():
        seen: dict[Hashable, _Place] = {}
        for place, claims in held.items():
            for sign in {sign for claim in claims for sign in claim.signs}:
                other = seen.setdefault(sign, place)
                if first.get(place, place) != first.get(other, other):
                    _join(first, place, other)
    return first


def _join(first: dict[_Place, _Place], place: _Place, other: _Place) -> None:
    old, new = first.get(place, place), first.get(other, other)
    for known in [old, *(p for p, head in first.items() if head == old)]:
        first[known] = new


def _number(claim: Claim) -> int | None:
    number = claim.name.number if claim.told is None else claim.told
    if number is None or number >= MAX_RANKS:
        return None
    impossible = claim.told is None and claim.possible is not None and number not in claim.possible
    return None if impossible else number
