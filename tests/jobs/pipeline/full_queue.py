"""Interleaved stages, two chunks a rank: rank 1 stands in `put` of a full queue, all others wait.

Receives are posted early, and sends awaited late. So every rank has halves of older messages
pending, and each wait leads through other ranks to rank 1.
"""

import queue
import threading
from typing import Any

import torch
import torch.distributed as dist

from zoo.rank import Job, fault, join

CASE = fault("not_entered", 1, "lock", within_s=45)
CHUNKS = 2
BATCHES = 4
LAST_STEP = 40


def write(losses: "queue.Queue[int]") -> None:
    """Takes the losses of some steps, and then no more."""
    for _ in range(LAST_STEP * BATCHES * CHUNKS):
        losses.get()
    threading.Event().wait()


def forwards(job: Job, losses: "queue.Queue[int]") -> list[Any]:
    """Each batch passes every rank once per chunk."""
    before, after = (job.rank - 1) % job.world, (job.rank + 1) % job.world
    sent = []
    for chunk in range(CHUNKS):
        first = job.rank == 0 and chunk == 0
        last = job.rank == job.world - 1 and chunk == CHUNKS - 1
        inputs = [torch.empty(100) for _ in range(BATCHES)]
        received = [None if first else dist.irecv(one, before, tag=chunk) for one in inputs]
        for work in received:
            if work is not None:
                work.wait()
            if job.rank == 1:
                losses.put(chunk)
            if not last:
                tag = chunk + (job.rank == job.world - 1)
                sent.append(dist.isend(torch.ones(100), after, tag=tag))
    return sent


job = join()
losses: queue.Queue[int] = queue.Queue(2)
if job.rank == 1:
    threading.Thread(target=write, args=(losses,), daemon=True).start()
for step, _ in enumerate(job.steps(at=LAST_STEP)):
    sent = forwards(job, losses)
    if job.late or step % 2:
        for work in sent:
            work.wait()
