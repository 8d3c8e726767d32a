"""Training steps of known length, for programs that are slow: work, batches and optimizers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

STEPS: Final = 5000
"""More than anybody watches."""
WORK_S: Final = 0.06
"""What every rank does in a step: it sleeps, so that hosts with few processors have room."""


def spin(seconds: float) -> None:
    """Keeps a processor for exactly so long, however fast it is.

    On a full host the rank waits for a processor meanwhile: *starved* is as right as *compute*.
    """
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def optimizer_of(model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
    """An optimizer, whose steps are those of the training; without a model it changes nothing."""
    parameters = [torch.nn.Parameter(torch.zeros(1))] if model is None else model.parameters()
    return torch.optim.SGD(parameters, lr=0.0)


def groups_of(members: list[list[int]], name: str, rank: int) -> dist.ProcessGroup:
    """Creates all of these groups, and returns the group of this rank."""
    own: list[dist.ProcessGroup] = []
    for ranks in members:
        group = dist.new_group(ranks, group_desc=name)
        if rank in ranks:
            own.append(group)
    return own[0]


def training(steps: int = STEPS, work_s: float = WORK_S) -> Iterator[int]:
    """Yields in each step once its work is done; then come an op and the optimizer."""
    gradient, optimizer = torch.ones(1000), optimizer_of()
    for step in range(steps):
        time.sleep(work_s)
        yield step
        dist.all_reduce(gradient)
        optimizer.step()


class Samples(Dataset[torch.Tensor]):
    """Numbered samples; `fault` is called before that with number `at` is returned."""

    def __init__(self, at: int, fault: Callable[[], object]) -> None:
        self._at, self._fault = at, fault

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self._at:
            self._fault()
        return torch.full((1000,), float(index))


class TimedBatches(Dataset[torch.Tensor]):
    """Batches of one element that take `seconds` each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self._seconds)
        return torch.full((100,), float(index))


def batches(seconds: float, workers: int = 0) -> Iterator[torch.Tensor]:
    """Batches of which each takes `seconds` in the rank itself, or in one of its workers."""
    yield from DataLoader(TimedBatches(seconds), batch_size=1, num_workers=workers)
