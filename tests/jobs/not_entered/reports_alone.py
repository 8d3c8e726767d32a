"""Rank 1 reports to a driver, which waits for all ranks; they train in a thread, as with Ray."""

import asyncio
import threading
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, Job, join

CASE = Case(
    (
        Truth(
            ("not_entered",),
            culprits=(1,),
            causes=("lock",),
            says=("reports_alone.py", "(report)", 'thread "trainer"'),
        ),
    ),
)

all_have_reported = threading.Lock()


def report() -> None:
    all_have_reported.acquire()


def train(job: Job) -> None:
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
            report()
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


async def main() -> None:
    job = join()
    all_have_reported.acquire()
    threading.Thread(target=train, args=(job,), name="trainer").start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
