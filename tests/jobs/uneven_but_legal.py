"""Thousands of ops that legally differ between ranks, at full speed. The job is healthy.

Uneven all_to_all, gather and scatter with different roots, all_reduce of other shapes, and a small
group beside the large one. Ends when FOLDER/stop exists.
"""

import sys
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist


def splits(step: int, rank: int, world: int) -> tuple[list[int], list[int]]:
    """Returns what a rank sends to each of the others, and receives from them."""
    sent = [1 + (step + 3 * rank + other) % 4 for other in range(world)]
    taken = [1 + (step + 3 * other + rank) % 4 for other in range(world)]
    return sent, taken


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    pair = dist.new_group([0, 1])
    shape = (4, 6) if rank % 2 else (24,)
    stop = torch.zeros(1)
    for step in count():
        root = step % world
        sent, taken = splits(step % 4, rank, world)
        dist.all_to_all_single(torch.empty(sum(taken)), torch.ones(sum(sent)), taken, sent)
        parts = [torch.empty(5) for _ in range(world)]
        dist.gather(torch.ones(5), parts if rank == root else None, root)
        dist.scatter(torch.empty(5), parts if rank == root else None, root)
        dist.all_reduce(torch.ones(shape))
        if rank < 2:
            dist.all_reduce(torch.ones(3), op=dist.ReduceOp.MAX, group=pair)
        if step % 50 == 0:
            stop.fill_((folder / "stop").exists())
            dist.broadcast(stop, 0)
            if stop.item():
                break
            if rank == 0:
                (folder / "steps").write_text(str(step))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
