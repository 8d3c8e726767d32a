"""Ways to hang without a recorder: `unrecorded.py FOLDER`, three ranks for each.

This process imports torch once and forks the ranks. Each hang has a function of its name with
the ground truth as its docstring. `FOLDER/<hang>.<rank>` has the process id once the rank is about
to hang.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

FOLDER = Path(sys.argv[1])
WORLD = 3
FOREVER = 600
PR_SET_PDEATHSIG = 1


def end_with_parent():
    """Makes the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Stuck(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        end_with_parent()
        time.sleep(FOREVER)


def join(rank, name):
    dist.init_process_group(
        "gloo", init_method=f"file://{FOLDER}/{name}.store", rank=rank, world_size=WORLD
    )


def sleeping(rank, tensor):
    """Rank 2 sleeps, the others wait for it."""
    if rank == 2:
        time.sleep(FOREVER)
    dist.all_reduce(tensor)


def loading(rank, tensor):
    """A worker of rank 0's DataLoader is stuck."""
    if rank == 0:
        next(iter(DataLoader(Stuck(), num_workers=1)))
    dist.all_gather_object([None] * WORLD, {"rank": rank})


def holding(rank, tensor):
    """Rank 1 sleeps in C and holds the GIL."""
    if rank == 1:
        ctypes.PyDLL(None).sleep(FOREVER)
    dist.barrier()


def computing(rank, tensor):
    """Rank 2 computes forever."""
    os.nice(19)  # there is a processor for those that look at the other hangs
    while rank == 2:
        tensor = tensor * 1.0
    dist.all_reduce(tensor)


def leaving(rank, tensor):
    """Rank 2 has fewer batches, and waits at the end."""
    epoch(tensor, 2 if rank == 2 else 3)
    dist.barrier()


def epoch(tensor, batches):
    for _ in range(batches):
        dist.all_reduce(tensor)


def crossing(rank, tensor):
    """Each rank receives from the next one first."""
    dist.recv(tensor, src=(rank + 1) % WORLD)
    dist.send(tensor, (rank - 1) % WORLD)


def backward(rank, tensor):
    """Rank 2 sleeps, the others wait in the backward pass."""
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    loss = model(torch.ones(2, 8)).sum()
    if rank == 2:
        time.sleep(FOREVER)
    loss.backward()


def late(rank, tensor):
    """Rank 0 sleeps, the others wait for ops that they have issued before."""
    if rank == 0:
        time.sleep(FOREVER)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()


def grouping(rank, tensor):
    """Rank 2 does not call new_group."""
    if rank == 2:
        time.sleep(FOREVER)
    dist.new_group(list(range(WORLD)))


def saving(rank, tensor):
    """The others wait for their own threads, which wait for rank 1, which sleeps."""
    if rank == 1:
        time.sleep(FOREVER)
    thread = threading.Thread(target=save, args=(tensor,), name="saver")
    thread.start()
    thread.join()


def save(tensor):
    dist.all_reduce(tensor)


def healthy(rank, tensor):
    """No rank waits long, and rarely twice at the same depth."""
    step = 0
    while True:
        step += 1
        deeper(step % 200, tensor)


def deeper(steps, tensor):
    if steps:
        deeper(steps - 1, tensor)
    else:
        dist.all_reduce(tensor)
        for _ in range(10):
            tensor @ tensor
        dist.barrier()


HANGS = [
    sleeping, loading, holding, computing, leaving, crossing, backward, late, grouping, saving,
    healthy,
]  # fmt: skip


def be(rank, hang):
    end_with_parent()
    join(rank, hang.__name__)
    tensor = torch.ones(100, 100)
    if hang is not grouping:
        dist.all_reduce(tensor)
    path = FOLDER / f"{hang.__name__}.{rank}"
    new = FOLDER / f"{rank}.{hang.__name__}.new"
    new.write_text(str(os.getpid()))
    new.rename(path)
    hang(rank, tensor)
    time.sleep(FOREVER)


def main():
    end_with_parent()
    torch.set_num_threads(1)
    for hang in HANGS:
        for rank in range(WORLD):
            if os.fork() == 0:
                be(rank, hang)
                os._exit(0)
    time.sleep(FOREVER)


if __name__ == "__main__":
    main()
