"""A loop of accelerate. Rank 1 reads FOLDER/shard, a pipe that nobody writes to, before step 20."""

import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(8, 8)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
for step in range(10_000):
    if step == 20 and accelerator.process_index == 1:
        Path(sys.argv[1], "shard").read_bytes()
    loss = model(torch.ones(4, 8)).sum()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
