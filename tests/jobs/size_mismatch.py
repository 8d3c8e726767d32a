"""Rank 1 reduces 1,025 elements where the others reduce 1,024; gloo aborts a process.

Truth: mismatch at all_reduce #4, rank 1 against the rest.
"""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    for _ in range(3):
        dist.all_reduce(torch.ones(1024))
    odd = dist.get_rank() == 1
    dist.all_reduce(torch.ones(1025 if odd else 1024))


if __name__ == "__main__":
    main()
