"""Trains until a file `end` is in the folder on the command line. Truth: healthy.

With `alone` as the second argument ranks issue no ops after the first, so that nobody waits for one
that is stopped, and the file `profiled-N` is there while torch's profiler records in rank N.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    folder, alone = Path(sys.argv[1]), "alone" in sys.argv
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    profiled = folder / f"profiled-{rank}"
    ended = torch.zeros(1)
    dist.all_reduce(ended)
    while not ended.item():
        optimizer.zero_grad()
        net(torch.ones(8, 32)).square().mean().backward()
        if not alone:
            for parameter in net.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        if alone and torch.autograd._profiler_enabled() != profiled.exists():
            profiled.unlink() if profiled.exists() else profiled.touch()
        ended.fill_(float((folder / "end").exists()))
        if not alone:
            dist.broadcast(ended, 0)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
