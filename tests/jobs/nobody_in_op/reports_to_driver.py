"""Rank 1 reports to a driver, which waits for all ranks; the others wait for their next data."""

import asyncio
import queue
import socket
import threading

from zoo.rank import Job, fault, join

CASE = fault(
    "undecided",
    progress="unknown",
    says=("no rank is in an op", "rank 1: thread", "(report)", "ranks 0,2-3: thread"),
    within_s=120,
)

line, driver = socket.socketpair()
batches: queue.Queue[int] = queue.Queue()


def report() -> None:
    line.recv(1)


def train(job: Job) -> None:
    for odd in job.steps():
        if odd:
            if job.rank == 1:
                report()
            batches.get()
        job.all_reduce()


async def main() -> None:
    job = join()
    threading.Thread(target=train, args=(job,), name="trainer").start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
