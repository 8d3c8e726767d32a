"""The root broadcasts fewer elements than the others take, once, in steps of a second."""

import time

import torch
import torch.distributed as dist

from zoo.rank import join
from zoo.truth import Case, Truth

CASE = Case(
    (
        Truth(
            ("mismatch",),
            culprits=(0,),
            causes=("mismatch",),
            progress=("active",),
            says=("512",),
        ),
    ),
)


def main() -> None:
    job = join()
    weights = torch.ones(1024)
    total = torch.ones(1)
    for step in range(100):
        time.sleep(0.2 if step < 12 else 1.0)
        odd = step == 15
        if odd:
            job.frozen()
        tensor = weights[:512] if odd and job.rank == 0 else weights
        job.keep(dist.broadcast(tensor, src=0, async_op=job.late))
        job.wait()
        job.keep(dist.all_reduce(total, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
