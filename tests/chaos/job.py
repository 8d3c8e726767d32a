"""A rank that checks every result, whatever happens to frtop beside it.

All tensors are made of seed, rank and step, and hold integers that add up exactly, also as
float32: each rank knows every result without communication. It exits with `WRONG` at the first
difference. Rank 0 ends the job at the file CHAOS_END: it broadcasts whether the file is there, so
that all end with the same step.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from hosts.ranks import enter

WRONG: Final = 3
SIZE: Final = 96
RATE: Final = 2.0**-10
"""A power of two: parameters stay exact."""
PAUSE_S: Final = 0.05
LONG_S: Final = 0.1
"""Steps that take longer are listed in the result."""
MOST: Final = 10_000
TIMEOUT_S: Final = 120
"""A rank of a job that lost one ends by then, if nothing ends it before."""


class WrongError(Exception):
    """A result is not what it has to be."""


def value(seed: int, rank: int, step: int, size: int = SIZE, bound: int = 1000) -> torch.Tensor:
    """Integers that any rank can make."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step * 101 + rank) % 2**63)
    return torch.randint(-bound, bound + 1, (size,), generator=generator)


def check(what: str, step: int, found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compares to the bit.

    Raises:
        WrongError: they differ.
    """
    if found.dtype != expected.dtype or not torch.equal(found, expected):
        at = (found != expected).nonzero().flatten()[:4].tolist()
        raise WrongError(f"step {step}, {what}: {found[at].tolist()} for {expected[at].tolist()}")


class Numbers(IterableDataset[torch.Tensor]):
    """What a rank reads from its one worker process."""

    def __init__(self, seed: int, rank: int) -> None:
        self._seed, self._rank = seed, rank

    def __iter__(self) -> Iterator[torch.Tensor]:
        item = 0
        while True:
            yield value(self._seed + 1, self._rank, item, 8)
            item += 1


def lists(items: list[torch.Tensor]) -> list[list[int]]:
    """A batch that a worker sends without a file in shared memory."""
    return [item.tolist() for item in items]


class Ops:
    """Every op that gloo has, on one group of ranks."""

    def __init__(self, seed: int, ranks: list[int], group: dist.ProcessGroup | None = None) -> None:
        self._seed, self._ranks, self._group = seed, ranks, group
        self._own = ranks.index(dist.get_rank())

    def step(self, step: int) -> None:
        """Issues them once, in a dtype of its turn."""
        dtype = (torch.int64, torch.float32)[step % 2]
        values = [value(self._seed, rank, step).to(dtype) for rank in self._ranks]
        own, total = values[self._own], torch.stack(values).sum(0)
        size, group = len(self._ranks), self._group
        reduced = own.clone()
        work = dist.all_reduce(reduced, group=group, async_op=True)
        gathered = [torch.empty_like(own) for _ in self._ranks]
        dist.all_gather(gathered, own, group=group)
        assert work is not None
        work.wait()
        check("all_reduce", step, reduced, total)
        check("all_gather", step, torch.cat(gathered), torch.cat(values))
        root = step % size
        sent = own.clone()
        dist.broadcast(sent, self._ranks[root], group=group)
        check("broadcast", step, sent, values[root])
        part = SIZE // size
        received = torch.empty(part, dtype=dtype)
        dist.reduce_scatter_tensor(received, own[: part * size].clone(), group=group)
        mine = slice(self._own * part, (self._own + 1) * part)
        check("reduce_scatter", step, received, total[: part * size][mine])
        exchanged = torch.empty(part * size, dtype=dtype)
        dist.all_to_all_single(exchanged, own[: part * size].clone(), group=group)
        check("all_to_all", step, exchanged, torch.cat([one[mine] for one in values]))
        message = torch.empty_like(own)
        after, before = (self._own + 1) % size, (self._own - 1) % size
        sending = dist.isend(own, self._ranks[after], group=group)
        dist.recv(message, self._ranks[before], group=group)
        assert sending is not None
        sending.wait()
        check("recv", step, message, values[before])


class Training:
    """DDP with two buckets; the gradients are sums of integers."""

    def __init__(self, seed: int) -> None:
        self._seed, self._world = seed, dist.get_world_size()
        self._model = torch.nn.Sequential(
            torch.nn.Linear(16, 64, bias=False), torch.nn.Linear(16, 64, bias=False)
        )
        for parameter in self._model.parameters():
            torch.nn.init.zeros_(parameter)
        self._ddp = DistributedDataParallel(_Sum(self._model), bucket_cap_mb=0.003)
        self._optimizer = torch.optim.SGD(self._ddp.parameters(), lr=RATE)
        self._expected = torch.zeros(16, dtype=torch.float64)

    def step(self, step: int) -> None:
        """One step; then all parameters are equal, and what they have to be."""
        rank = dist.get_rank()
        inputs = [value(self._seed + 2, one, step, 16, bound=3) for one in range(self._world)]
        self._optimizer.zero_grad()
        self._ddp(inputs[rank].to(torch.float32)).backward()
        self._optimizer.step()
        flat = torch.cat([one.detach().flatten() for one in self._model.parameters()])
        copies = [torch.empty_like(flat) for _ in range(self._world)]
        dist.all_gather(copies, flat)
        for other in copies:
            check("parameters", step, other.view(torch.int32), flat.view(torch.int32))
        self._expected -= torch.stack(inputs).sum(0).double() / self._world * RATE
        if self._world in (2, 4):  # a mean over three is not exact
            check("training", step, flat.double(), self._expected.repeat(flat.numel() // 16))


class _Sum(torch.nn.Module):
    def __init__(self, layers: torch.nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([layer(inputs).sum() for layer in self.layers]).sum()


class Beside(threading.Thread):
    """A second thread with a group of its own; rank 0 says in each of its steps whether it ends."""

    def __init__(self, seed: int, group: dist.ProcessGroup) -> None:
        super().__init__(name="beside", daemon=True)
        self._seed, self._group = seed, group
        self.last = threading.Event()
        self.problem = ""

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - told by the main thread
            self.problem = str(error) or repr(error)

    def _run(self) -> None:
        world, rank, step = dist.get_world_size(), dist.get_rank(), 0
        while True:
            tensor = value(self._seed + 3, rank, step)
            last = torch.tensor([int(self.last.is_set())])
            dist.broadcast(last, 0, group=self._group)
            dist.all_reduce(tensor, group=self._group)
            values = [value(self._seed + 3, one, step) for one in range(world)]
            check("all_reduce of the thread", step, tensor, torch.stack(values).sum(0))
            if last.item():
                return
            step += 1
            time.sleep(PAUSE_S)


def move() -> None:
    """Goes to the host of this rank, if there are several; `CHAOS_HOSTS` lists them."""
    hosts = json.loads(os.environ["CHAOS_HOSTS"])
    if hosts:
        here = hosts[int(os.environ["RANK"]) % len(hosts)]
        enter(here["holder"])
        os.environ.update(here["environment"])


def main() -> None:
    folder, seed = Path(os.environ["ZOO_FOLDER"]), int(os.environ["CHAOS_SEED"])
    move()
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_S))
    rank, world = dist.get_rank(), dist.get_world_size()
    pair = dist.new_group([0, 1])
    beside = None
    if os.environ["CHAOS_THREAD"] == "1":
        beside = Beside(seed, dist.new_group())
        beside.start()
    as_lists = os.environ["CHAOS_LISTS"] == "1"
    loader = DataLoader(
        Numbers(seed, rank), batch_size=2, num_workers=1, collate_fn=lists if as_lists else None
    )
    steps = [Ops(seed, list(range(world))).step]
    if rank < 2:
        steps.append(Ops(seed + 4, [0, 1], pair).step)
    steps.append(Training(seed).step)
    batches, step, longest, last = iter(loader), 0, 0.0, False
    long: list[tuple[float, float]] = []
    while not last:
        begin = time.monotonic()
        last = _step(steps, batches, (seed, rank), step)
        end = time.monotonic()
        if step:  # the first makes connections
            longest = max(longest, end - begin)
            if end - begin > LONG_S and len(long) < MOST:
                long.append((begin, end))
        step += 1
        (folder / f"began.{rank}").touch()
        time.sleep(PAUSE_S)
    if beside is not None:
        beside.last.set()
        beside.join()
        if beside.problem:
            raise WrongError(beside.problem)
    result = {"steps": step, "longest_s": longest, "long": long}
    (folder / f"result.{rank}").write_text(json.dumps(result))
    del batches
    dist.destroy_process_group()


def _step(
    steps: Sequence[Callable[[int], None]],
    batches: Iterator[torch.Tensor | list[list[int]]],
    whose: tuple[int, int],
    step: int,
) -> bool:
    """Does one step; returns whether it is the last one."""
    seed, rank = whose
    items = [value(seed + 1, rank, item, 8) for item in (2 * step, 2 * step + 1)]
    check("batch", step, torch.as_tensor(next(batches)), torch.stack(items))
    for one in steps:
        one(step)
    last = torch.tensor([int(rank == 0 and Path(os.environ["CHAOS_END"]).exists())])
    dist.broadcast(last, 0)
    return bool(last.item())


if __name__ == "__main__":
    try:
        main()
    except WrongError as error:
        print(f"wrong: {error}", flush=True)
        sys.exit(WRONG)
