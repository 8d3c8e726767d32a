"""Two ranks send 16 MB to each other before they receive; no buffer is that large."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("cycle",), parties=((0,), (1,)), causes=("cycle",)),), ranks=2)


def main() -> None:
    job = join()
    small, large = torch.ones(1000), torch.ones(4 << 20)
    peer = 1 - job.rank
    for step in range(100):
        time.sleep(STEP_S)
        tensor = small if step < 40 else large
        sends_first = job.rank == 0 or step >= 40
        if step == 40:
            job.mark_fault()
        for sends in (sends_first, not sends_first):
            if job.late:
                job.keep(dist.isend(tensor, peer) if sends else dist.irecv(tensor, peer))
                job.wait()
            elif sends:
                dist.send(tensor, peer)
            else:
                dist.recv(tensor, peer)


if __name__ == "__main__":
    main()
