"""Every rank reads the same file, and its storage does not answer."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (
        Truth(
            ("not_entered",),
            culprits=(0, 1, 2, 3),
            causes=("file_io",),
            says=("nobody is in an op", "vocabulary"),
        ),
    ),
    within_s=120.0,
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    vocabulary = job.pipe("vocabulary")
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40:
            job.mark_fault()
            vocabulary.read_bytes()
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
