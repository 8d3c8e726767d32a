"""In the first step each rank compiles another number of graphs, rank 3 the most.

They compile equal graphs one by one, under a lock file of the compiler.
"""

import torch

from zoo.ground_truth import Truth
from zoo.rank import Case, join
from zoo.work import compute

CASE = Case(
    lasts_s=60,
    environment={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
    allowed=tuple(
        Truth(
            ("not_entered",), ranks, (), ("compiling", "computing", "lock"), ("active", "unknown")
        )
        for ranks in ((1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3))
    ),
)

job = join()
models = []
for count in range(job.rank):
    layers = [torch.nn.Linear(50, 50), torch.nn.GELU(), torch.nn.LayerNorm(50)] * (count + 2)
    models.append(torch.compile(torch.nn.Sequential(*layers)))
job.mark_fault()
for _ in range(60):
    compute(0.1, share=0.3)
    for model in models:
        model(torch.ones(8, 50)).sum().backward()
    job.all_reduce()
