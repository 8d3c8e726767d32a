"""What happens in a round: all of it follows from the seed and from what this machine can do."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from chaos.hurts import HURTS, Need
from chaos.site import Reach

Way = Literal["python", "native", "unprepared"]
"""The recorder's kernels, or no recorder."""
Able = Literal["freezer", "pids", "small", "clock", "tmux", "hosts", "ssh"]
"""What not every machine can do."""


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
        ops: whether the stream writes all ops.
        thread: whether each rank has a second thread with a group of its own.
        small: whether frtop's folder is on a small file system.
        clock: whether clocks of processes can jump.
        beside: who looks besides the stream.
        kills: what is killed at the end: a rank, or the worker that reads data for it.
        restarts: whether the job is started again after that.
    """

    seed: int
    way: Way
    reach: Reach
    ranks: int
    ops: bool
    thread: bool
    small: bool
    clock: bool
    beside: Literal["", "screen", "watch"]
    kills: Literal["", "rank", "worker"]
    deeds: tuple[Deed, ...]
    restarts: bool

    def __str__(self) -> str:
        having = [name for name in ("ops", "thread", "small", "clock") if getattr(self, name)]
        having += [self.beside] * bool(self.beside) + [f"kills a {self.kills}"] * bool(self.kills)
        having += ["starts again"] * self.restarts
        head = f"seed {self.seed}: {self.ranks} ranks, {self.way}, {self.reach}"
        return "\n".join(
            [f"{head}; {', '.join(having) or 'plain'}", *(f"  {d}" for d in self.deeds)]
        )

    @property
    def lists(self) -> bool:
        """Whether ranks' workers send lists: tensors would need what a hurt takes from them."""
        return any(HURTS[deed.name].lists for deed in self.deeds)

    @property
    def is_sure(self) -> bool:
        """Whether it can be known who died first.

        Through shells, ranks are looked at twice a second, and the death of one is that of all
        within milliseconds. Without a recorder nobody tells the exception of a rank that has lost
        its worker from those of others, which have lost the connection to it.
        """
        told = self.way != "unprepared" or self.kills != "worker"
        return told and self.reach in ("here", "ports")


PAUSES_S: Final = (0.0, 1.2)
"""Between the begins of two hurts."""


def plan_of(
    seed: int, ways: tuple[Way, ...], most: int, able: Collection[Able], *, hosts: float = 0.35
) -> Plan:
    """Returns the round of a seed, with 1 to `most` hurts, which overlap.

    `able`: what this machine can do. `hosts`: the share of rounds on several hosts.
    """
    chance = random.Random(seed)
    way = chance.choice(ways)
    ranks = chance.choice((2, 2, 3, 4))
    ops, thread = (chance.random() < share for share in (0.4, 0.3))
    kills: Literal["", "rank", "worker"] = chance.choice(("", "", "", "rank", "worker"))
    reach: Reach = "here"
    if chance.random() < hosts and "hosts" in able:
        if way != "unprepared":
            reach = "ports"
        elif "ssh" in able:
            reach = "ssh" if chance.random() < 0.5 else "through"
    small = chance.random() < 0.35 and "small" in able and reach == "here"
    clock = chance.random() < 0.25 and "clock" in able and reach in ("here", "ports")
    beside: Literal["", "screen", "watch"] = chance.choice(("", "screen", "watch"))
    if beside == "screen" and "tmux" not in able:
        beside = ""
    names = _possible(way, reach, beside, able, small=small, clock=clock)
    deeds, now = [], 0.0
    for _ in range(chance.randint(1, most)):
        name = chance.choice(names)
        now += chance.uniform(*PAUSES_S)
        deeds.append(Deed(name, now, now + chance.uniform(*HURTS[name].lasts_s)))
    restarts = bool(kills) and chance.random() < 0.5
    return Plan(
        seed, way, reach, ranks, ops, thread, small, clock, beside, kills, tuple(deeds), restarts
    )


def _possible(
    way: Way, reach: Reach, beside: str, able: Collection[Able], *, small: bool, clock: bool
) -> list[str]:
    """Hurts that can be done in such a round, here."""
    there: set[Need] = {"freezer", "pids"} & set(able)  # type: ignore[assignment]
    there |= {"recorder"} if way != "unprepared" else set()
    there |= {"here"} if reach == "here" else {"links"}
    there |= {"shells"} if reach in ("ssh", "through") else {"folders"}
    there |= {"relay"} if reach == "through" else set()
    there |= {"small"} if small else set()
    there |= {"clock"} if clock else set()
    there |= {beside} if beside else set()  # type: ignore[arg-type]
    return [name for name, hurt in HURTS.items() if there.issuperset(hurt.needs)]
