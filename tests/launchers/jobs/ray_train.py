"""Two workers of Ray Train. Rank 1 reads FOLDER/shard, a pipe, before step 20."""

import os
import sys
import time
from pathlib import Path

import ray
import torch
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchTrainer, prepare_model


def train(config):
    model = prepare_model(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(10_000):
        if step == 20 and get_context().get_world_rank() == 1:
            Path(config["folder"], "shard").read_bytes()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)


folder = str(Path(sys.argv[1]).resolve())
ray.init(num_cpus=None if "RAY_ADDRESS" in os.environ else 4, include_dashboard=False)
TorchTrainer(
    train, train_loop_config={"folder": folder}, scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=folder),
).fit()  # fmt: skip
