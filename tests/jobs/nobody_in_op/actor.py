"""Every rank waits for the answer of an actor, a process of its own that is stuck in a read."""

import multiprocessing
import os
from multiprocessing.connection import Connection

import torch

from zoo.rank import fault, join

CASE = fault(
    "not_entered",
    (0, 1, 2, 3),
    ("pipe", "socket", "subprocess"),
    progress="unknown",
    says=("no rank is in an op", "actor.py"),
    suspected="what they wait for may come",
    within_s=120,
)
ANSWERS = 60


def act(requests: Connection) -> None:
    for _ in range(ANSWERS):
        requests.send(requests.recv() + 1)
    reading, _writing = os.pipe()
    os.read(reading, 1)


job = join()
gradient = torch.ones(1000)
ours, theirs = multiprocessing.Pipe()
actor = multiprocessing.get_context("fork").Process(target=act, args=(theirs,), daemon=True)
actor.start()
for number, _ in enumerate(job.steps(at=ANSWERS)):
    ours.send(number)
    gradient += ours.recv()
    job.all_reduce(gradient)
