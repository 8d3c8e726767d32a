"""What happens in a round: all of it follows from the seed and from what this machine can do."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal

from chaos.hurts import HURTS, are_there

Way = Literal["python", "native", "unprepared"]
"""The recorder's kernels, or no recorder."""


@dataclass(frozen=True, slots=True)
class Deed:
    """A hurt, and when it begins and ends: seconds after the job has begun to train."""

    name: str
    at_s: float
    until_s: float

    def __str__(self) -> str:
        return f"{self.at_s:5.2f} to {self.until_s:5.2f} s: {self.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A round.

    Attributes:
        ops: whether the screen writes all ops.
        thread: whether each rank has a second thread with a group of its own.
        small: whether frtop's folder is on a small file system.
        kills: whether a rank is killed at the end.
    """

    seed: int
    way: Way
    ranks: int
    ops: bool
    thread: bool
    small: bool
    kills: bool
    deeds: tuple[Deed, ...]

    def __str__(self) -> str:
        having = [name for name in ("ops", "thread", "small", "kills") if getattr(self, name)]
        head = f"seed {self.seed}: {self.ranks} ranks, {self.way}; {', '.join(having) or 'plain'}"
        return "\n".join([head, *(f"  {deed}" for deed in self.deeds)])


PAUSES_S: Final = (0.0, 1.2)
"""Between the begins of two hurts."""


def plan_of(seed: int, ways: tuple[Way, ...], most: int, *, root: bool) -> Plan:
    """Returns the round of a seed, with 1 to `most` hurts, which overlap."""
    chance = random.Random(seed)
    way = chance.choice(ways)
    ranks = chance.choice((2, 2, 3, 4))
    ops, thread, kills = (chance.random() < share for share in (0.4, 0.3, 0.4))
    small = chance.random() < 0.35 and root
    names = are_there(recorder=way != "unprepared", small=small)
    deeds, now = [], 0.0
    for _ in range(chance.randint(1, most)):
        name = chance.choice(names)
        now += chance.uniform(*PAUSES_S)
        deeds.append(Deed(name, now, now + chance.uniform(*HURTS[name].lasts_s)))
    return Plan(seed, way, ranks, ops, thread, small, kills, tuple(deeds))
