"""Which rank a dump is of: dumps do not say, so their names and their content have to.

    nccl_trace_rank_3   comm_lib_trace_rank_3   _dump_3   dump-node02_3   rank3.json

The number that a name ends in counts, unless two files have the same, or the groups that
the dump itself tells of do not have that rank: then it was a number on its host, say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_tui.job.naming import listed

_ENDINGS: Final = (".json", ".pkl", ".pickle", ".bin", ".trace", ".dump")
_LAST: Final = re.compile(r"^(.*?)(\d{1,7})$", re.ASCII | re.DOTALL)
_RANK: Final = re.compile(r"rank[_-]?(\d{1,7})(?!\d)", re.ASCII)
_USUAL: Final = re.compile(
    r"(?<![a-z0-9])(?:nccl|nccl2|comm_lib|gloo|fr|flight_recorder|trace|dump|rank)(?![a-z0-9])",
    re.ASCII,
)
HOW: Final = "name each file for its rank: nccl_trace_rank_0, nccl_trace_rank_1, ..."


@dataclass(frozen=True, slots=True)
class Named:
    """What a name alone tells: a number, if it has one, and perhaps a host."""

    number: int | None
    host: str = ""


def named(path: Path) -> Named:
    """`nccl_trace_rank_container-node02_5` is number 5, on `container-node02`."""
    stem = path.name
    while stem.endswith(_ENDINGS):
        stem = stem.rpartition(".")[0]
    found = _LAST.match(stem)
    if found is not None:
        words = _USUAL.sub("", found[1].replace("_", " ").replace("comm lib", "comm_lib"))
        return Named(int(found[2]), "_".join(words.split()).strip("-."))
    inside = _RANK.findall(stem)
    return Named(int(inside[-1]) if inside else None)


@dataclass(frozen=True, slots=True)
class Claim:
    """One dump: its name, and the ranks that its own groups leave possible (None: any)."""

    path: Path
    name: Named
    possible: frozenset[int] | None


def ranks_of(claims: Sequence[Claim]) -> tuple[list[int | None], list[str]]:
    """The rank of each, None where it cannot be told; and what to say about those.

    Two files of one name but for its ending, or its first word, are of one rank: torch
    keeps a recorder for each backend.
    """
    places: dict[int, set[tuple[Path, str]]] = {}
    numbers = [_number(claim) for claim in claims]
    for claim, number in zip(claims, numbers, strict=True):
        if number is not None:
            places.setdefault(number, set()).add((claim.path.parent, claim.name.host))
    ranks: list[int | None] = []
    for claim, number in zip(claims, numbers, strict=True):
        if number is not None and len(places[number]) == 1:
            ranks.append(number)
        else:
            only = claim.possible if claim.possible and len(claim.possible) == 1 else ()
            ranks.append(next(iter(only), None))
    unknown = [c.path.name for c, rank in zip(claims, ranks, strict=True) if rank is None]
    notes = [f"whose dumps {listed(unknown)} are cannot be told: {HOW}"] if unknown else []
    return ranks, notes


def _number(claim: Claim) -> int | None:
    number = claim.name.number
    if number is not None and claim.possible is not None and number not in claim.possible:
        return None
    return number
