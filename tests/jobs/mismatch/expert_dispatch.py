"""Experts: rank 1 expects more rows of rank 0 than that sends; only the return trip shows it.

The dispatch passes: gloo leaves the rest as it was. Rank 1 then sends back more rows than rank 0
takes.
"""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault(
    "mismatch",
    causes="mismatch",
    parties=((0,), (1,)),
    says="rank 0 sends 4 rows to rank 1, which expects 5",
    modes=("sync",),
)

job = join()
for odd in job.steps(1):
    sent, expected = [4, 4, 4, 4], [5 if odd else 4, 4, 4, 4]
    rows = torch.ones(sum(sent), 8)
    mine = torch.empty(sum(expected), 8)
    dist.all_to_all_single(mine, rows, expected, sent)  # dispatch
    back = torch.empty_like(rows)
    dist.all_to_all_single(back, mine * 2, sent, expected)  # combine
