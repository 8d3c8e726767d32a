"""A job for RAS: ranks reduce together, then do what files in their folder say."""

from __future__ import annotations

import ctypes
import time
from typing import Final

import torch
import torch.distributed as dist

from gpu_kit import facts
from gpu_kit.programs.joining import Here, join, say_joined

ABSENT: Final = 2
TOGETHER: Final = 10
GIL_S: Final = 14
LASTS_S: Final = 150.0


def main() -> None:
    here = join()
    tensor = torch.ones(1000, device=here.device)
    for _ in range(TOGETHER):
        dist.all_reduce(tensor)
    here.synchronize()
    say_joined(here, 0.0, right=True)
    here.meet("ready")
    if here.rank == ABSENT:
        _stay_away(here)
    facts.say("entering", rank=here.rank)
    dist.all_reduce(tensor)
    here.synchronize()
    time.sleep(LASTS_S)


def _stay_away(here: Here) -> None:
    """Holds the GIL when it is asked to, and never enters the op."""
    if here.wait_for_file("hold", LASTS_S):
        facts.say("holding", rank=here.rank)
        ctypes.PyDLL(None).sleep(GIL_S)
        facts.say("held", rank=here.rank)
    time.sleep(LASTS_S)


if __name__ == "__main__":
    main()
