"""Only rank 0 evaluates, for a long time; the others wait for its next gradients."""

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from zoo.rank import fault, join

CASE = fault("not_entered", 0, "computing", progress="active", modes=("sync",))


@torch.no_grad()
def evaluate(model: torch.nn.Module) -> float:
    right = 0.0
    data = TensorDataset(torch.ones(200_000, 100))
    for (batch,) in DataLoader(data, batch_size=8):
        right += float(model(batch).mean())
    return right


job = join()
torch.manual_seed(0)
inner = torch.nn.Sequential(torch.nn.Linear(100, 500), torch.nn.ReLU(), torch.nn.Linear(500, 100))
model = DistributedDataParallel(inner)
for odd in job.steps(0):
    model.zero_grad()
    model(torch.ones(4, 100)).sum().backward()
    while odd:
        print("evaluation:", evaluate(inner))
