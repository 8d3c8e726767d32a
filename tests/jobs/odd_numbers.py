"""DDP on three ranks that trains until a file is there; other files make numbers go wrong.

`nan`: once, the loss of rank 1 is NaN. `parameter`: once, a bit of a parameter of rank 2 flips.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = torch.nn.Linear(16, 4)
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.01)
    ended = torch.zeros(1)
    done = set()
    while True:
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16) + rank).square().mean()
        if rank == 1 and "nan" not in done and (folder / "nan").exists():
            done.add("nan")
            loss = loss * float("nan")
        loss.backward()
        for gradient in (one.grad for one in net.parameters()):
            assert gradient is not None
            gradient.nan_to_num_()
        optimizer.step()
        if rank == 2 and "parameter" not in done and (folder / "parameter").exists():
            done.add("parameter")
            net.weight.data.view(torch.int32)[2, 3] ^= 1
        ended.fill_(float((folder / "end").exists()))
        dist.broadcast(ended, 0)
        if ended.item():
            return
        time.sleep(0.02)


if __name__ == "__main__":
    main()
