"""What torch's analyzer of Flight Recorder dumps (`torchfrtrace`) prints: who did not join an op.

It prints a block of lines for each op, of each group in the order of numbers. Only the first op of
a group counts: ranks that lack it lack the later ones, too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from frtop_probe.consistency.profiling_names import parse
from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.files.logs.scan import LogLine

MOST_GROUPS: Final = 4096


class Analysis(NamedTuple):
    """An op that some members of its group have not issued; ranks are those of the job."""

    group: str
    description: str
    number: int
    op: str
    missing: frozenset[int]
    members: tuple[int, ...]
    line: LogLine


class Analyses:
    """Puts blocks together."""

    def __init__(self) -> None:
        self._block: dict[str, str] = {}
        self._line: LogLine | None = None
        self._groups: set[str] = set()

    def take(self, found: dict[str, str], line: LogLine) -> Analysis | None:
        """Takes one line of a block; returns the block when it is complete."""
        if "number" in found:
            self._block, self._line = {}, line
        self._block |= found
        block = self._block
        if self._line is None or "members" not in found or not {"missing", "group"} <= {*block}:
            return None
        members, missing = _ranks(block["members"]), frozenset(_ranks(block["missing"]))
        group = block["group"]
        known = group in self._groups or len(self._groups) >= MOST_GROUPS
        if known or not missing < {*members} or max(members) >= MAX_RANKS:
            return None
        self._groups.add(group)
        op = parse(block["op"]).common_kind if "op" in block else ""
        number, name = int(block["number"]), block["description"]
        return Analysis(group, name, number, op, missing, members, self._line)


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(one) for one in text.split(",")}))
