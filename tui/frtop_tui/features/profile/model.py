"""What is ordered of torch's profiler, how far ranks are with it, and what it described."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from frtop_tui.connect.followers import Order
from frtop_tui.job.model import Problem
from frtop_tui.job.units import counted

MOST_RANKS: Final = 64
"""Ranks in one order: each writes a file, and all of them become one."""

CPU: Final = "CPU"
"""The device whose allocator keeps no totals."""

OPTION_COSTS: Final = {
    "shapes": "tensors live until their op is over",
    "stacks": "steps take about twice as long",
    "memory": "an event for each block that is allocated or freed",
    "execution": "steps take up to ten times as long",
}
"""What an option of an order costs the ranks."""

RankStage = Literal[
    "ordered",  # the rank has not answered yet
    "waiting",  # for the thread that trains to reach a step, or an op
    "running",
    "saving",
    "fetching",
    "done",
    "failed",
]


class ProfileOptions(Struct, frozen=True):
    """`steps`, or `seconds` if there are none; `wait_s` is the time to reach the first."""

    steps: int = 5
    seconds: float = 0.0
    wait_s: float = 60.0
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    execution: bool = False
    separate: bool = False  # a file for each rank, as torch wrote it


class RankProfile(Struct, frozen=True):
    """How far one rank is. `done` and `total` are bytes of its files."""

    rank: int
    host: str
    stage: RankStage = "ordered"
    first: int = 0
    last: int = 0
    lasted_ns: int = 0
    stood_still_ns: int = 0
    done: int = 0
    total: int = 0
    text: str = ""  # why it failed, or what is in the way

    @property
    def complete(self) -> bool:
        return self.stage in ("fetching", "done")


class RankAllocations(Struct, frozen=True):
    """What torch's allocator handed out on one device while a rank's profile ran, in bytes.

    `reserved` is the most that it held of the device, which the CPU's allocator does not say. Of
    the CPU torch counts only what is allocated under a profiler: there `start` is 0.
    """

    rank: int
    device: str  # `CPU`, or as in cuda:0
    start: int
    end: int
    peak: int
    reserved: int = 0
    out_of_memory: int = 0  # how often there was none left


class ProfileProgress(Struct, frozen=True):
    """One order for some ranks, and what becomes of its file."""

    options: ProfileOptions
    ranks: tuple[RankProfile, ...]
    path: str
    state: Literal["running", "merging", "written", "failed", "withdrawn"] = "running"
    size: int = 0
    problem: Problem | None = None
    since_ns: int = 0  # operator's clock
    allocations: tuple[RankAllocations, ...] = ()  # of a merged file, if they were ordered
    has_modules: bool = False  # whether it is a merged file of ranks that record modules

    @property
    def can_be_ended(self) -> bool:
        """Whether some ranks are complete, and others are waited for."""
        return self.state == "running" and any(one.complete for one in self.ranks)


class ProfileOrder(Struct, Order, frozen=True):
    """Run torch's profiler in these ranks, and write one file of it."""

    ranks: tuple[int, ...]
    options: ProfileOptions
    path: Path


class Withdrawal(Struct, Order, frozen=True):
    """End that, in the ranks as well; with `keep` write the ranks that are complete."""

    keep: bool = False


class ParameterDescription(Struct, frozen=True):
    """A parameter of a module; `placements`, `mesh` and the `local` shape of a DTensor only."""

    name: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    local: tuple[int, ...] | None = None
    placements: str = ""
    mesh: str = ""  # dp=2, tp=4


class ModuleDescription(Struct, frozen=True):
    """A module by the class of the outermost one and the path below it, and what is its own."""

    root: str
    path: str
    type: str = ""
    parameters: tuple[ParameterDescription, ...] = ()


class ModelDescription(Struct, frozen=True):
    """The modules of a rank as its profile began. `left_out` are too many to be described.

    `composite` are names of torch's ops that are only made of others.
    """

    modules: tuple[ModuleDescription, ...] = ()
    left_out: int = 0
    composite: tuple[str, ...] = ()

    @property
    def has_dtensors(self) -> bool:
        return any(one.placements for module in self.modules for one in module.parameters)


def length_text(options: ProfileOptions) -> str:
    """`5 steps`, `2.5 s`."""
    return counted(options.steps, "step") if options.steps else f"{options.seconds:g} s"


def cost_lines(options: ProfileOptions) -> tuple[str, ...]:
    """What an order costs the ranks, whatever its options: a person reads it before giving it."""
    length = length_text(options)
    return (
        f"torch.profiler runs inside the ranks for {length}, from their next step on.",
        "Each op of torch, and each call of a recorded module, takes some µs longer.",
        "At the end the rank stands still while torch writes: some 10 µs an event.",
        "Where modules are recorded it stands still at the start too: 0.2 s at most.",
    )
