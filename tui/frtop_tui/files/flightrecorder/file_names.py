"""Which rank a file belongs to: dumps do not say, so their names and groups must.

    nccl_trace_rank_3   comm_lib_trace_rank_3   _dump_3   dump-node02_3   rank3.json
    rank_3.pyspy.json   nccl_trace_rank_3_20250922_224717

The rank is the number after `rank`, or else the one at the end of the name. It is rejected if
two files have the same number, or if the dump's own groups do not have that rank: it may have
been a number on its host. Times and local ranks are skipped. For other names the user gives a
pattern (`RankPattern`).
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
from frtop_tui.job.naming import listed, printable

_ENDINGS: Final = (".json", ".pkl", ".pickle", ".bin", ".trace", ".dump", ".pyspy", ".html")
_LAST: Final = re.compile(r"^(.*?)(?<!\d)(\d{1,7})$", re.ASCII | re.DOTALL)
_RANK: Final = re.compile(r"^(.*rank[_-]?)(\d{1,7})(?!\d)(.*)$", re.ASCII | re.DOTALL)
_LOCAL: Final = re.compile(r"[._-]?local[._-]?rank[._-]?\d+", re.ASCII)
_TIME: Final = re.compile(
    r"[._@-](?:\d{9,19}|\d{8}[T._-]?\d{6}Z?|\d{4}-\d\d-\d\d[T._ -]\d\d[:._-]?\d\d[:._-]?\d\d)$",
    re.ASCII,
)
_EPOCH: Final = re.compile(r"[._@-](\d{10,19})$", re.ASCII)
_UNITS: Final = (10**9, 10**6, 10**3, 1)
"""Possible units of a time in a name, in ns."""
_FIRST: Final = 1_400_000_000_000_000_000
"""Times in names lie between 2014 and 2058; other numbers mean something else."""
_COMMON_WORDS: Final = re.compile(
    r"(?<![a-z0-9])(?:nccl|nccl2|comm_lib|gloo|fr|flight_recorder|trace|dump|rank|json|pyspy)"
    r"(?![a-z0-9])",
    re.ASCII,
)
_DUMP_NAME: Final = re.compile(
    r"(?:(?:trace|dump|rank|fr)[\w.@:-]*\d(?:\.json|\.pkl|\.pickle)?|fr_trace[\w.@-]*\.(?:html|json))$"
)
MOST_STARS: Final = 4
HOW_TO_NAME: Final = (
    "name each file for its rank (nccl_trace_rank_0, nccl_trace_rank_1, ...), or say how they"
    " are named: --ranks-from 'host*_gpu{rank}'"
)


@dataclass(frozen=True, slots=True)
class FileName:
    """What the name of a file says by itself: a number, if it has one, and perhaps a host."""

    number: int | None
    host: str = ""


class RankPattern:
    """How files are named: `{rank}` stands for the rank's number, `*` for any text.

    A pattern with slashes also matches folders: `rank{rank}/trace.json`.
    """

    def __init__(self, text: str) -> None:
        """Parses the pattern.

        Raises:
            UsageError: it does not have `{rank}` exactly once, or too many stars.
        """
        if text.count("{rank}") != 1 or not text.strip("/"):
            raise UsageError(
                f"{text!r} does not say where in the name the rank is",
                "write {rank} there, once: --ranks-from 'host*_gpu{rank}'",
            )
        text = re.sub(r"\*+", "*", text)
        if text.count("*") > MOST_STARS:  # each multiplies the time that a name may take
            raise UsageError(
                f"{text!r} has more than {MOST_STARS} stars", "one * stands for any text"
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
    """The pattern that `--ranks-from` gives. Raises `UsageError` if it is invalid."""
    return RankPattern(text) if text is not None else None


def is_dump_name(path: Path) -> bool:
    """Whether a file in a folder has a usual name for dumps."""
    return _DUMP_NAME.search(path.name) is not None


def parse_name(path: Path, pattern: RankPattern | None = None) -> FileName:
    """`nccl_trace_rank_container-node02_5` has number 5 and host `container-node02`."""
    if pattern is not None:
        return FileName(pattern.number(path))
    stem = path.name
    while stem.endswith(_ENDINGS):
        stem = stem.rpartition(".")[0]
    stem = _TIME.sub("", stem)
    if (inside := _after_rank(stem)) is not None:
        return FileName(int(inside[2]), _host(f"{inside[1]} {inside[3]}"))
    found = _LAST.match(stem)
    return FileName(int(found[2]), _host(found[1])) if found is not None else FileName(None)


def rank_in_name(path: Path) -> int | None:
    """The number after `rank` in a name."""
    inside = _after_rank(path.name)
    return int(inside[2]) if inside is not None else None


def _after_rank(name: str) -> re.Match[str] | None:
    return _RANK.match(_LOCAL.sub("", name)) or _RANK.match(name)


def time_in_name(path: Path) -> int:
    """The time at the end of a name, in ns since the epoch; 0 if none, or in an unknown zone."""
    stem = path.name
    while stem.endswith(_ENDINGS):
        stem = stem.rpartition(".")[0]
    found = _EPOCH.search(stem)
    if found is None:
        return 0
    number = int(found[1])
    return next((number * unit for unit in _UNITS if _FIRST <= number * unit < 2 * _FIRST), 0)


def _host(text: str) -> str:
    """What a name contains besides the common words: usually a host."""
    spaced = printable(text).replace("_", " ").replace("comm lib", "comm_lib")
    return "_".join(_COMMON_WORDS.sub("", spaced).split()).strip("-.@")


class Claim(Struct, frozen=True):
    """What one dump says about its rank: by its name, and by its own groups (None: any rank).

    Only dumps of one process share `op_ids`. `page_rank` is set if a page names the rank.
    """

    path: Path
    name: FileName
    possible_ranks: frozenset[int] | None
    op_ids: frozenset[Hashable] = frozenset()
    page_rank: int | None = None


def assign_ranks(claims: Sequence[Claim]) -> tuple[list[int | None], list[str]]:
    """Decides the rank of each dump.

    Files with one number, folder and host belong to one rank: torch has a recorder for each
    backend. So do files in different folders or of different hosts, if one process wrote two that
    have the same number there.

    Returns:
        The ranks, None for unknown, and sentences about the unknown ones.
    """
    numbers = [_number(claim) for claim in claims]
    sources: dict[int, dict[_Source, list[Claim]]] = {}
    for claim, number in zip(claims, numbers, strict=True):
        if number is not None and claim.page_rank is None:
            source = (claim.path.parent, claim.name.host)
            sources.setdefault(number, {}).setdefault(source, []).append(claim)
    merged = _merge(sources)
    unique = {
        number
        for number, found in sources.items()
        if len({merged.get(source, source) for source in found}) == 1
    }
    ranks: list[int | None] = []
    for claim, number in zip(claims, numbers, strict=True):
        if claim.page_rank is not None or number in unique:
            ranks.append(number)
        else:
            possible = claim.possible_ranks or ()
            ranks.append(next(iter(possible)) if len(possible) == 1 else None)
    unknown = [c.path.name for c, rank in zip(claims, ranks, strict=True) if rank is None]
    notes = [f"the rank of {listed(unknown)} is unknown: {HOW_TO_NAME}"] if unknown else []
    return ranks, notes


_Source = tuple[Path, str]
"""Folder and host."""


def _merge(sources: dict[int, dict[_Source, list[Claim]]]) -> dict[_Source, _Source]:
    """Maps each source to the first one that has dumps of the same processes."""
    first: dict[_Source, _Source] = {}
    for found in sources.values():
        seen: dict[Hashable, _Source] = {}
        for source, claims in found.items():
            for op in {op for claim in claims for op in claim.op_ids}:
                other = seen.setdefault(op, source)
                if first.get(source, source) != first.get(other, other):
                    _join(first, source, other)
    return first


def _join(first: dict[_Source, _Source], source: _Source, other: _Source) -> None:
    old, new = first.get(source, source), first.get(other, other)
    for known in [old, *(p for p, head in first.items() if head == old)]:
        first[known] = new


def _number(claim: Claim) -> int | None:
    if claim.page_rank is not None:
        return claim.page_rank if claim.page_rank < MAX_RANKS else None
    number, possible = claim.name.number, claim.possible_ranks
    if number is None or number >= MAX_RANKS or (possible is not None and number not in possible):
        return None
    return number
