"""Ranks differ where they may, at full speed: splits, sides of roots, objects, shapes, lines."""

from typing import Any

import torch
import torch.distributed as dist

from zoo.rank import Case, Job, join

CASE = Case()


def exchange(job: Job, step: int) -> None:
    """Sends `a + b + step` numbers from rank `a` to rank `b`."""
    sent = [(job.rank + other + step) % 5 for other in range(job.world)]
    inputs, outputs = torch.ones(sum(sent)), torch.empty(sum(sent))
    job.keep(dist.all_to_all_single(outputs, inputs, sent, sent, async_op=job.late))


def collect(job: Job, root: int) -> None:
    mine = torch.ones(5)
    parts = [torch.empty(5) for _ in range(job.world)] if job.rank == root else None
    job.keep(dist.gather(mine, parts, dst=root, async_op=job.late))
    job.keep(dist.scatter(mine, parts, src=root, async_op=job.late))


def talk(job: Job, step: int) -> None:
    said: list[Any] = [None] * job.world
    dist.all_gather_object(said, {"rank": job.rank, "text": "x" * (job.rank * step % 97)})
    news = ["y" * (step % 53)] if job.rank == step % job.world else [None]
    dist.broadcast_object_list(news, src=step % job.world)


job = join()
flat, square = torch.ones(100), torch.ones(10, 10)
for step in range(400):
    exchange(job, step)
    collect(job, step % job.world)
    talk(job, step)
    if job.rank % 2:
        job.keep(dist.all_reduce(flat, async_op=job.late))
    else:
        job.keep(dist.all_reduce(square, async_op=job.late))
    job.wait()
    flat.fill_(1)
    square.fill_(1)
