"""Three ranks with a group for each pair, and each rank first waits in a different group."""

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("deadlock", causes="deadlock", parties=((0,), (1,), (2,)), ranks=3)

job = join()
pairs = [(0, 1), (1, 2), (2, 0)]
groups = [dist.new_group(sorted(pair), group_desc=f"pair {pair}") for pair in pairs]
for odd in job.steps():
    mine = [group for group, pair in zip(groups, pairs, strict=True) if job.rank in pair]
    if odd:
        mine = [groups[job.rank], groups[job.rank - 1]]
    for group in mine:
        job.all_reduce(group=group)
