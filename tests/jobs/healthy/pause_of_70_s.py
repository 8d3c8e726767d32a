"""All ranks poll for new data, and there is none for 70 s."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    lasts_s=90.0,
    # It is the first pause of the job that frtop sees.
    allowed=(Truth(("undecided",), progress=("unknown",)),),
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(10_000):
        time.sleep(STEP_S)
        if step == 40:
            job.mark_fault()
            time.sleep(70)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
