"""MainThread runs an event loop, and another thread trains: nothing is wrong."""

import asyncio
import threading
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from zoo.rank import STEP_S, Case, join

CASE = Case(modes=("sync",), lasts_s=45)


def train(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        time.sleep(STEP_S)
        model(torch.ones(10, 100)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


join()
model = DistributedDataParallel(nn.Linear(100, 100))
threading.Thread(target=train, args=(model,), name="trainer", daemon=True).start()
asyncio.new_event_loop().run_forever()
