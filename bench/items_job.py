"""A rank of a DDP job with a plain loop, for comparisons with other tools on the same steps.

    python -m torch.distributed.run --nproc-per-node 2 -m bench.items_job --steps 400 --late-ms 5

Rank 1's dataset takes `--late-ms` longer for each of the 4 items of a batch. With `--traceml` the
loop is what traceml needs: its `init` and `trace_step`, and nothing else differs. Rank 0 prints as
JSON at the end the median time of a step in ms, and its CPU time (all threads of the process).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

ITEMS = 4
"""Of a batch."""
WARM = 20
"""Steps that are not counted."""


class Items(Dataset[torch.Tensor]):
    """Items that take 1 ms, and some more where `late_s` says so."""

    def __init__(self, count: int, late_s: float) -> None:
        self.count, self.late_s = count, late_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.001 + self.late_s)
        return torch.full((512,), float(index % 7))


def _traced(wanted: bool, model: Any) -> Callable[[], contextlib.AbstractContextManager[None]]:
    if not wanted:
        return contextlib.nullcontext
    import traceml_ai  # type: ignore[import-not-found]  # noqa: PLC0415 - in an environment of its own

    return lambda: traceml_ai.trace_step(model)


def main() -> None:
    """Trains, and prints the times of steps."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--late-ms", type=float, default=0.0)
    options.add_argument("--leak-kib", type=int, default=0, help="that rank 1 forgets in each step")
    options.add_argument("--traceml", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if chosen.traceml:
        import traceml_ai  # noqa: PLC0415

        traceml_ai.init(mode="auto")
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    late = dist.get_rank() == 1
    items = Items(ITEMS * chosen.steps, chosen.late_ms / 1000 if late else 0.0)
    step, ends, forgotten = _traced(chosen.traceml, model), [], []
    for batch in DataLoader(items, batch_size=ITEMS):
        with step():
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
        if late and chosen.leak_kib:
            forgotten.append(torch.ones(256 * chosen.leak_kib))
        ends.append((time.perf_counter(), time.process_time()))
    if not late:
        counted = ends[WARM:]
        wall = median(after[0] - before[0] for before, after in pairwise(counted))
        cpu = (counted[-1][1] - counted[0][1]) / (len(counted) - 1)
        print(json.dumps({"wall_ms": 1000 * wall, "cpu_ms": 1000 * cpu}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
