"""Every rank waits at a queue that its reader, which has ended, filled."""

import queue
import threading

import torch

from zoo.rank import fault, join

CASE = fault(
    "not_entered",
    (0, 1, 2, 3),
    "lock",
    progress="unknown",
    says=("no rank is in an op", "queue_get.py"),
    suspected="what they wait for may come",
    within_s=120,
)
BATCHES = 60

batches: queue.Queue[int] = queue.Queue()


def read() -> None:
    for number in range(BATCHES):
        batches.put(number)


job = join()
gradient = torch.ones(1000)
threading.Thread(target=read, daemon=True).start()
for _ in job.steps(at=BATCHES):
    gradient += batches.get()
    job.all_reduce(gradient)
