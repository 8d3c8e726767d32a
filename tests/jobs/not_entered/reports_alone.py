"""Rank 1 reports to a driver, which waits for all ranks; they train in a thread, as with Ray."""

import asyncio
import threading

from zoo.rank import Job, fault, join

CASE = fault("not_entered", 1, "lock", says=("reports_alone.py", "(report)", 'thread "trainer"'))

all_have_reported = threading.Lock()


def report() -> None:
    all_have_reported.acquire()


def train(job: Job) -> None:
    for odd in job.steps(1):
        if odd:
            report()
        job.all_reduce()


async def main() -> None:
    job = join()
    all_have_reported.acquire()
    threading.Thread(target=train, args=(job,), name="trainer").start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
