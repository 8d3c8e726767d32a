"""An ordinary DDP training script, with an option to make one rank fail.

It knows nothing about frtop. torchrun starts it; a DataLoader reads shards from a folder.
"""

import argparse
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FEATURES = 64
SAMPLES_PER_SHARD = 64
BATCH = 16


class Shards(Dataset):
    """The shards of one rank: every `world`-th file, `SAMPLES_PER_SHARD` rows of floats."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.files = sorted(folder.glob("shard-*"))[rank::world]

    def __len__(self) -> int:
        return len(self.files) * SAMPLES_PER_SHARD

    def __getitem__(self, index: int):
        shard, row = divmod(index, SAMPLES_PER_SHARD)
        size = (FEATURES + 1) * 4
        with self.files[shard].open("rb", buffering=0) as file:
            if row:
                file.seek(row * size)
            values = torch.frombuffer(bytearray(file.read(size)), dtype=torch.float32)
        return values[:-1], values[-1:]


def fail(fault: str, data: Path) -> None:
    """The fault of the chosen rank at the chosen step."""
    if fault == "exit":
        sys.exit(0)
    elif fault == "exception":
        raise ValueError("loss is nan at this step")
    elif fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "mismatch":
        dist.barrier()  # the usual mistake: a collective inside `if rank == ...`
    elif fault == "gil":
        ctypes.PyDLL(None).sleep(3600)  # an extension that forgets to release the GIL
    elif fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "sleep":
        time.sleep(3600)
    elif fault == "file":
        with (data / "vocabulary").open("rb") as file:  # a named pipe that nothing writes to
            file.read()
    elif fault == "compute":
        matrix = torch.randn(256, 256)
        while True:
            matrix = torch.tanh(matrix @ matrix)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--fault", default="none")
    parser.add_argument("--fault-rank", type=int, default=2)
    parser.add_argument("--fault-step", type=int, default=40)
    args = parser.parse_args()

    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    shards = Shards(args.data, rank, world)
    loader = DataLoader(shards, batch_size=BATCH, num_workers=2, persistent_workers=True)
    # Workers are forked before the group starts threads: in CPython before 3.10.15, 3.11.10
    # and 3.12 a worker can hang at its start, on a lock that a thread held (gh-112275).
    iter(loader)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    step = 0
    while step < args.steps:
        for features, target in loader:
            loss = nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == args.fault_rank and step == args.fault_step:
                fail(args.fault, args.data)
            if step % 20 == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                if rank == 0:
                    print(f"step {step}  loss {mean.item() / world:.4f}", flush=True)
            if step >= args.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
