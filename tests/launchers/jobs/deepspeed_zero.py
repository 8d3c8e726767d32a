"""ZeRO 2 of DeepSpeed, on gloo. Rank 1 reads FOLDER/shard, a pipe, before step 20."""

import sys
import time
from pathlib import Path

import deepspeed
import torch

deepspeed.init_distributed("gloo")
model = torch.nn.Linear(8, 8)
engine, *_ = deepspeed.initialize(
    model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
    config={"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2},
            "zero_allow_untested_optimizer": True},
)  # fmt: skip
for step in range(10_000):
    if step == 20 and torch.distributed.get_rank() == 1:
        Path(sys.argv[-1], "shard").read_bytes()
    engine.backward(engine(torch.ones(4, 8)).sum())
    engine.step()
    time.sleep(0.05)
