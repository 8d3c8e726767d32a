"""A NaN and a flipped bit are named with module and parameter, where modules are recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from features.tensor_checks.sampled_ranks import sampled
from frtop_probe import wire
from frtop_tui.features.tensor_checks.comparison import Findings
from frtop_tui.features.tensor_checks.finding_words import finding_words
from frtop_tui.features.tensor_checks.samples import GroupNames
from frtop_tui.job.stack_frames import site_line
from recorder.interactive_rank import Ranks, interactive_ranks, notes, run

pytest.importorskip("frtop_probe.features.modules")
pytestmark = pytest.mark.torch

MODEL = """
class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.clone()
        dist.all_reduce(out)
        return out
    @staticmethod
    def backward(ctx, grad): return grad

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.reduces = False
    def forward(self, x):
        x = self.down(self.up(x).relu())
        return Reduce.apply(x) if self.reduces else x

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(4))
    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x

torch.manual_seed(0)
net = Net()
ddp = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.002)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
flip = None
def hook(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    def then(future):
        if flip == bucket.index() and rank == 2:
            bucket.buffer().view(torch.int32)[3] ^= 1
        return bucket.buffer()
    return work.get_future().then(then)
ddp.register_comm_hook(None, hook)
poisoned = None
def poison(name, parameter):
    def spoil(grad):
        if rank == 1 and poisoned == name:
            grad = grad.clone()
            grad.view(-1)[-1] = float("nan")
        return grad
    parameter.register_hook(spoil)
for name, parameter in net.named_parameters():
    poison(name, parameter)
first = [one.detach().clone() for one in net.parameters()]
def train(steps):
    for _ in range(steps):
        opt.zero_grad()
        ddp(torch.randn(4, 8) + rank).square().mean().backward()
        for one in net.parameters():
            one.grad.nan_to_num_()
        opt.step()
    for one, old in zip(net.parameters(), first):
        one.data.copy_(old)
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    folder = tmp_path_factory.mktemp("numbers") / "rings"
    with interactive_ranks(folder, 3) as found:
        run(tuple(found), MODEL + "train(1)")
        for one in found:
            reply, _ = one.request(ask="ChangeRecording", settings={"modules": True})
            assert reply["recorded"]["settings"]["modules"]
        run(tuple(found), "train(2)")
        yield tuple(found)


def said(found: Findings) -> str:
    names = GroupNames({("0", "0-2", 0): "dp"})
    return "\n".join(" ".join(one[:2]) for one in finding_words(found, names, site_line))


@pytest.mark.parametrize("name", ["layers.0.up.weight", "layers.1.down.bias", "layers.3.up.bias"])
def test_a_nan_in_a_bucket_is_named_with_its_parameter(ranks: Ranks, name: str) -> None:
    found = sampled(ranks, f"train(1); poisoned = {name!r}; train(1); poisoned = None; train(1)")
    (bad,) = found.bad
    assert (bad.rank, bad.sample.sample.nans) == (1, 1)
    assert bad.sample.sample.parameter == name
    issuer = bad.sample.issuer
    assert issuer is not None
    assert issuer.part.startswith("DDP bucket")
    assert name.rpartition(".")[0] in issuer.modules
    assert f"(backward, {issuer.part.partition(' (')[0]}), step " in said(found)
    assert f"the first one is in the gradient of {name}" in said(found)
    # Once for each watch: the note that the rank itself has written.
    assert any(f"from {name} on, step" in note for note in notes(ranks[1]))


def test_a_nan_of_a_forward_is_named_with_its_module(ranks: Ranks) -> None:
    found = sampled(ranks, """
net.layers[2].reduces = True
if rank == 0: net.layers[2].down.weight.data[0, 0] = float("nan")
with torch.no_grad(): net(torch.ones(2, 8))
net.layers[2].reduces = False
train(1)
""")  # fmt: skip
    bad = found.bad[0]
    assert bad.rank == 0
    assert bad.sample.issuer == wire.Issuer("forward", "layers.2", "Net")
    assert "(forward of layers.2), step " in said(found)


def test_a_bit_in_a_bucket_is_named_with_the_bucket(ranks: Ranks) -> None:
    found = sampled(ranks, "train(2); flip = 1; train(1); flip = None; train(1)")
    (one,) = found.ops
    assert one.odd == (2,)
    assert one.issuer is not None
    assert one.issuer.part.startswith("DDP bucket 1: ")
    assert "(backward, DDP bucket 1: layers." in said(found)


def test_parameters_have_names_that_their_optimizer_lacks(ranks: Ranks) -> None:
    found = sampled(
        ranks,
        "train(1)\nif rank == 1: net.layers[1].up.bias.data[3] = 9\ntrain(1)\n",
        steps=5, ops=0,
    )  # fmt: skip
    # `train` takes over the first parameters at its end, so one step has it.
    assert {(one.role, one.odd) for one in found.steps} == {("parameter", (1,))}
    assert found.steps[0].names == ("layers.1.up.bias (float32, 16 values)",)
