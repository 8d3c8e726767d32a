"""MainThread runs an event loop, another thread trains: in rank 2 it waits for another process."""

import asyncio
import multiprocessing
import threading
import time
from multiprocessing.connection import Connection

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, Job, join

CASE = Case(
    (Truth(("not_entered",), culprits=(2,), causes=("pipe", "socket"), says=('thread "trainer"',)),)
)


def answer(link: Connection, answers: int) -> None:
    """An actor: it answers some requests, and then no more."""
    for _ in range(answers):
        link.send(link.recv())
    time.sleep(600)


def train(job: Job, link: Connection, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 2:
            job.mark_fault()
        link.send(torch.ones(10, 100).tolist())
        loss = model(torch.tensor(link.recv())).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    job = join()
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    answers = 40 if job.rank == 2 else 1000
    context.Process(target=answer, args=(other, answers), daemon=True).start()
    model = DistributedDataParallel(nn.Linear(100, 100))
    arguments = (job, mine, model)
    threading.Thread(target=train, args=arguments, name="trainer", daemon=True).start()
    asyncio.new_event_loop().run_forever()


if __name__ == "__main__":
    main()
