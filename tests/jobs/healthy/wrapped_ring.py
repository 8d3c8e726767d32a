"""Two kinds of groups with very unequal numbers of ops, more than a ring holds."""

import torch
import torch.distributed as dist

from zoo.rank import Case, join

CASE = Case(lasts_s=45)

job = join()
tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][job.rank // 2]
data = [dist.new_group([0, 2]), dist.new_group([1, 3])][job.rank % 2]
activations, gradient = torch.ones(10), torch.ones(10)
for _ in range(600):
    # Pairs need not advance at the same pace.
    for _ in range(20 + 20 * (job.rank // 2)):
        job.keep(dist.all_reduce(activations, group=tensor, async_op=job.late))
    job.wait()
    job.all_reduce(gradient, data)
    activations.fill_(1)
