"""A rank of a DDP job with a plain loop, for comparisons with other tools on the same steps.

    python -m torch.distributed.run --nproc-per-node 2 -m bench.items_job --steps 400 --late-ms 5

Rank 1's dataset takes `--late-ms` longer for each of the 4 items of a batch. With `--traceml`, the
loop also calls traceml's `init` and `trace_step`; nothing else differs. With `--frtop` or
`--traceml`, `--paired` switches that tool off and on again between blocks of steps. Rank 0 prints
as JSON how many ms blocks of steps took, with and without it: wall clock, and CPU of all threads.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

ITEMS = 4
"""Items of a batch."""
WARM = 20
"""Steps that are not counted."""
BLOCK = 12
SETTLED = 2
"""Steps of a block that are not counted: after a switch, kernels have to be chosen again."""


class Items(Dataset[torch.Tensor]):
    """Items that take 1 ms, and `late_s` more."""

    def __init__(self, count: int, late_s: float) -> None:
        self.count, self.late_s = count, late_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.001 + self.late_s)
        return torch.full((512,), float(index % 7))


Step = Callable[[], contextlib.AbstractContextManager[None]]


def _switch(tool: str, model: Any) -> Callable[[bool], Step]:
    """Returns a function that switches a tool on or off and returns the context of a step."""
    if tool == "traceml":
        import traceml_ai  # type: ignore[import-not-found]  # noqa: PLC0415 - an extra environment

        return lambda on: (lambda: traceml_ai.trace_step(model)) if on else contextlib.nullcontext
    if tool == "frtop":
        from bench.recorder_switch import RecorderSwitch  # noqa: PLC0415

        switch = RecorderSwitch(torch)

        def change(on: bool) -> Step:
            dist.barrier()  # no thread issues ops now
            switch.set(on)
            return contextlib.nullcontext

        return change
    return lambda _: contextlib.nullcontext


def main() -> None:
    """Trains, and prints the times of steps."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--late-ms", type=float, default=0.0)
    options.add_argument("--leak-kib", type=int, default=0, help="what rank 1 leaks in each step")
    tools = options.add_mutually_exclusive_group()
    tools.add_argument("--traceml", dest="tool", action="store_const", const="traceml", default="")
    tools.add_argument("--frtop", dest="tool", action="store_const", const="frtop")
    options.add_argument("--paired", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if chosen.tool == "traceml":
        import traceml_ai  # noqa: PLC0415

        traceml_ai.init(mode="auto")
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    late = dist.get_rank() == 1
    items = Items(ITEMS * chosen.steps, chosen.late_ms / 1000 if late else 0.0)
    switch, forgotten = _switch(chosen.tool, model), []
    step = switch(True)
    took: dict[bool, list[list[float]]] = {True: [], False: []}
    began = time.perf_counter(), time.process_time()
    for number, batch in enumerate(DataLoader(items, batch_size=ITEMS)):
        if not number % BLOCK:
            on = not chosen.paired or number // BLOCK % 4 in {0, 3}  # with, without, without, with
            step = switch(on)
        if number % BLOCK == SETTLED:
            began = time.perf_counter(), time.process_time()
        with step():
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
        if late and chosen.leak_kib:
            forgotten.append(torch.ones(256 * chosen.leak_kib))
        if number % BLOCK == BLOCK - 1 and number > WARM:
            now = time.perf_counter(), time.process_time()
            each = [1000 * (end - begin) / (BLOCK - 1 - SETTLED)
                    for begin, end in zip(began, now, strict=True)]  # fmt: skip
            took[on].append(each)
    if not late:
        print(json.dumps({"with": took[True], "without": took[False]}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
