"""Rank 2 waits at a queue for a child process that was killed, as by an out-of-memory kill."""

import multiprocessing
import os
import signal
from multiprocessing.queues import Queue

import torch

from zoo.rank import Job, fault, join

CASE = fault("not_entered", 2, ("lock", "pipe"), says=("has ended, by SIGKILL", "child_killed.py"))


def prepare(batches: "Queue[list[float]]", count: int) -> None:
    for _ in range(count):
        batches.put([1.0] * 1000)
    batches.close()
    batches.join_thread()
    os.kill(os.getpid(), signal.SIGKILL)


def train(job: Job, batches: "Queue[list[float]]") -> None:
    for _ in job.steps(2):
        gradient = torch.tensor(batches.get())
        job.all_reduce(gradient)


context = multiprocessing.get_context("fork")  # before there are threads
batches = context.Queue()
count = 40 if os.environ["RANK"] == "2" else 100
context.Process(target=prepare, args=(batches, count), daemon=True).start()
train(join(), batches)
