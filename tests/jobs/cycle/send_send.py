"""Two ranks send 16 MB to each other before they receive; no buffer is that large."""

import torch

from zoo.rank import fault, join

CASE = fault("deadlock", causes="deadlock", parties=((0,), (1,)), ranks=2)

job = join()
small, large = torch.ones(1000), torch.ones(4 << 20)
peer = 1 - job.rank
for step, _ in enumerate(job.steps()):
    tensor = small if step < 40 else large
    sends_first = job.rank == 0 or step >= 40
    for sends in (sends_first, not sends_first):
        (job.send if sends else job.receive)(tensor, peer)
