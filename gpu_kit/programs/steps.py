"""Steps with the recorder on and off, in alternating blocks: `ddp`, `fsdp`, `moe`, or `ops`.

First, the same steps run twice from the same start, without and with it: the results must be equal.
Then pairs of blocks run, in an order that changes from pair to pair. `stop` and `start` switch the
whole recorder, including its thread.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from itertools import chain
from typing import Final

import torch
import torch.distributed as dist

import frtop_probe
from gpu_kit import facts, status
from gpu_kit.programs import training
from gpu_kit.programs.joining import Here, dump, join, say_joined
from gpu_kit.programs.training import Maker, Step

EQUAL_STEPS: Final = 5
WARM_STEPS: Final = 3
MOST_PAIRS: Final = 60
STEPS: Final = 4
"""Steps of a block."""
OPS_OF_A_BLOCK: Final = 200
RING: Final = 2100
"""More ops than the Flight Recorder keeps."""


def main() -> None:
    kind, seconds = sys.argv[1], float(sys.argv[2])
    frtop_probe.start()
    here = join()
    # A first op makes the communicator.
    dist.all_reduce(torch.ones(1, device=here.device))
    here.synchronize()
    say_joined(here, 0.0, right=True)
    if kind == "ops":
        _ops(here, seconds)
    else:
        make = training.MAKERS[kind]
        _equal(here, kind, make)
        _timed(here, kind, make(here)[0], seconds)
    dist.destroy_process_group()


def _equal(here: Here, kind: str, make: Maker) -> None:
    digests = []
    for on in (False, True):
        (frtop_probe.start if on else frtop_probe.stop)()
        step, result = make(here)
        for _ in range(EQUAL_STEPS):
            step()
        here.synchronize()
        digests.append(str(result()))
    facts.say("equal", kind=kind, rank=here.rank, digests=digests)


def _timed(here: Here, kind: str, step: Step, seconds: float) -> None:
    for _ in range(WARM_STEPS):
        step()
    here.synchronize()
    began = time.monotonic()
    step()
    here.synchronize()
    pairs = _agreed(here, seconds / (2 * STEPS * max(1e-4, time.monotonic() - began)))
    blocks: dict[bool, list[list[float]]] = {True: [], False: []}
    choose = random.Random(1)
    for _ in range(max(2, min(MOST_PAIRS, pairs))):
        first = choose.random() < 0.5
        for on in (first, not first):
            blocks[on].append(_block(here, step, on=on))
    ratios = [
        statistics.median(with_it) / statistics.median(without)
        for with_it, without in zip(blocks[True], blocks[False], strict=True)
    ]
    facts.say(
        "timed", kind=kind, rank=here.rank, ratios=ratios,
        on_ms=1e3 * statistics.median(chain(*blocks[True])),
        off_ms=1e3 * statistics.median(chain(*blocks[False])),
    )  # fmt: skip


def _block(here: Here, step: Step, *, on: bool) -> list[float]:
    (frtop_probe.start if on else frtop_probe.stop)()
    step()  # brings the ranks together again
    here.synchronize()
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        step()
        here.synchronize()
        times.append(time.perf_counter() - began)
    return times


def _agreed(here: Here, number: float) -> int:
    """Returns the smallest number that any rank has."""
    one = torch.tensor([number], device=here.device)
    dist.all_reduce(one, op=dist.ReduceOp.MIN)
    return int(one.item())


# -- single ops of one rank, and looks at a full ring


def _ops(here: Here, seconds: float) -> None:
    tensor = torch.ones(1000, device=here.device)
    frtop_probe.stop()
    for _ in range(RING):
        dist.all_reduce(tensor)
    here.synchronize()
    _say_looks(here)
    medians: dict[bool, list[float]] = {True: [], False: []}
    choose = random.Random(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(medians[True]) < MOST_PAIRS:
        first = choose.random() < 0.5
        for on in (first, not first):
            (frtop_probe.start if on else frtop_probe.stop)()
            medians[on].append(_op_us(here, tensor))
    added = [a - b for a, b in zip(medians[True], medians[False], strict=True)]
    facts.say("op", added_us=added, on_us=statistics.median(medians[True]),
              off_us=statistics.median(medians[False]))  # fmt: skip


def _op_us(here: Here, tensor: torch.Tensor) -> float:
    times = []
    for _ in range(OPS_OF_A_BLOCK):
        began = time.perf_counter_ns()
        dist.all_reduce(tensor)
        times.append((time.perf_counter_ns() - began) / 1e3)
    here.synchronize()
    return statistics.median(times)


def _say_looks(here: Here) -> None:
    time.sleep(0.5)
    backend = here.backend
    for name, collectives, active, looks in (
        ("status", False, True, 500),
        ("dump", True, False, 5),
    ):
        times, size = [], 0
        for _ in range(looks):
            began = time.perf_counter_ns()
            size = len(dump(backend, collectives, active))
            times.append(time.perf_counter_ns() - began)
            time.sleep(0.001)
        facts.say("look cost", look=name, bytes=size, **status.summary_us(times))


if __name__ == "__main__":
    main()
