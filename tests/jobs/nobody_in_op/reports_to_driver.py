"""Rank 1 reports to a driver, which waits for all ranks; the others wait for their next data."""

import asyncio
import queue
import socket
import threading
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, Job, join

CASE = Case(
    (
        Truth(
            ("undecided",),
            progress=("unknown",),
            says=("nobody is in an op", "rank 1: thread", "(report)", "ranks 0,2-3: thread"),
        ),
    ),
    within_s=120.0,
)

line, driver = socket.socketpair()
batches: queue.Queue[int] = queue.Queue()


def report() -> None:
    line.recv(1)


def train(job: Job) -> None:
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40:
            job.mark_fault()
            if job.rank == 1:
                report()
            batches.get()
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


async def main() -> None:
    job = join()
    threading.Thread(target=train, args=(job,), name="trainer").start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
