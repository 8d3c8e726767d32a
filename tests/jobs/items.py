"""Trains a small DDP model; rank 1's dataset takes 5 ms more for each item while a file is there.

Truth: while FOLDER/late exists, each of rank 1's batches takes ITEMS times LATE_S longer, so each
step does, in the fetch of rank 1. FOLDER/step has the number of the last step. While FOLDER/hold
exists, rank 0 begins no other.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

ITEMS = 4
LATE_S = 0.005
STEPS = 20_000


class Items(Dataset[torch.Tensor]):
    """Items that take 0.5 ms each."""

    def __init__(self, late: Path) -> None:
        self.late = late

    def __len__(self) -> int:
        return ITEMS * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.0005)
        if index % ITEMS == 0 and dist.get_rank() == 1 and self.late.exists():
            time.sleep(LATE_S * ITEMS)
        return torch.full((32,), float(index % 7))


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(32, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loader = DataLoader(Items(folder / "late"), batch_size=ITEMS)
    for step, batch in enumerate(loader):
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()
        if dist.get_rank() == 0:
            (folder / "step").write_text(f"{step:06}")
            while (folder / "hold").exists():
                time.sleep(0.001)


if __name__ == "__main__":
    main()
