"""Orders for torch's profiler, the ranks' progress, and what a profile describes."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from frtop_tui.connect.followers import Order
from frtop_tui.job.model import Problem
from frtop_tui.job.units import counted

MOST_RANKS: Final = 64
"""The most ranks in one order: each writes a file, and these are merged into one."""

CPU: Final = "CPU"
"""The device whose allocator has no totals."""

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
    "warming",
    "running",
    "saving",
    "fetching",
    "done",
    "failed",
]


class ProfileOptions(Struct, frozen=True):
    """`steps`, or `seconds` if `steps` is 0; `wait_s` is the time to reach the first step.

    Steps are recorded from `at_step` on, or from the next one on if that is 0, after `warm_up`
    steps whose events are dropped.
    """

    steps: int = 5
    seconds: float = 0.0
    wait_s: float = 60.0
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    execution: bool = False
    separate: bool = False  # a file per rank, as torch wrote it
    at_step: int = 0
    warm_up: int = 0


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
    text: str = ""  # why it failed, or what holds it up

    @property
    def complete(self) -> bool:
        return self.stage in ("fetching", "done")


class RankAllocations(Struct, frozen=True):
    """What torch's allocator allocated on one device during a rank's profile, in bytes.

    `reserved` is the most that it held of the device; the CPU's allocator does not report it. On
    the CPU, torch counts only what is allocated under a profiler: there `start` is 0.
    """

    rank: int
    device: str  # `CPU`, or as in cuda:0
    start: int
    end: int
    peak: int
    reserved: int = 0
    out_of_memory: int = 0  # how often it ran out of memory


class ProfileProgress(Struct, frozen=True):
    """The progress of one order, and of its file."""

    options: ProfileOptions
    ranks: tuple[RankProfile, ...]
    path: str
    state: Literal["running", "merging", "written", "failed", "withdrawn"] = "running"
    size: int = 0
    problem: Problem | None = None
    since_ns: int = 0  # operator's clock
    allocations: tuple[RankAllocations, ...] = ()  # from a merged file, if ordered
    has_modules: bool = False  # whether it is a merged file of ranks that record modules

    @property
    def can_be_ended(self) -> bool:
        """Whether some ranks are complete while others are not."""
        return self.state == "running" and any(one.complete for one in self.ranks)


class ProfileOrder(Struct, Order, frozen=True):
    """Run torch's profiler in these ranks, and write one file."""

    ranks: tuple[int, ...]
    options: ProfileOptions
    path: Path


class Withdrawal(Struct, Order, frozen=True):
    """End the order, in the ranks as well; with `keep`, write the complete ranks."""

    keep: bool = False


class ParameterDescription(Struct, frozen=True):
    """A parameter of a module; only DTensors have `placements`, `mesh` and a `local` shape."""

    name: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    local: tuple[int, ...] | None = None
    placements: str = ""
    mesh: str = ""  # dp=2, tp=4


class ModuleDescription(Struct, frozen=True):
    """A module: the outermost module's class, the path below it, and its own parameters."""

    root: str
    path: str
    type: str = ""
    parameters: tuple[ParameterDescription, ...] = ()


class ModelDescription(Struct, frozen=True):
    """The modules of a rank when its profile began. `left_out` modules were too many to describe.

    `composite` has the names of torch's ops that consist of other ops only.
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
    """What any order costs the ranks; a person reads it before giving the order."""
    length = length_text(options)
    begin = f"step {options.at_step}" if options.at_step else "their next step"
    warm_up = ""
    if options.warm_up:
        when = "before that" if options.at_step else "first"
        warm_up = f"; {when}, it warms up for {counted(options.warm_up, 'step')} without recording"
    return (
        f"torch.profiler runs inside the ranks for {length}, from {begin} on{warm_up}.",
        "Each op of torch, and each call of a recorded module, takes some µs longer.",
        "At the end the rank stands still while torch writes: some 10 µs an event.",
        "Where modules are recorded it stands still at the start too: 0.2 s at most.",
    )
