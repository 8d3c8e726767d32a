"""Modules are switched on and off while a rank runs: names are right, and training is the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from frtop_probe import wire
from recorder.interactive_rank import InteractiveRank, Ranks, interactive_ranks, notes, run
from recorder.rank_runner import issuers
from waiting import wait_for

pytestmark = pytest.mark.torch

MODEL = """
import hashlib
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
    def forward(self, x):
        if saved:
            lifecycle.recorder.ring.write_note("inside")
            wait_for(lambda: lifecycle.recorder.find_issuer)
        dist.all_reduce(x.detach().sum())
        return self.linear(x)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(2))
    def forward(self, x):
        for layer in self.layers: x = layer(x)
        return x
def make():
    global net, ddp, opt
    torch.manual_seed(0)
    net = Net()
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
make()
def train(steps, model=None):
    model = ddp if model is None else model
    for _ in range(steps):
        opt.zero_grad()
        model(torch.ones(2, 8) + rank).square().mean().backward()
        opt.step()
def digest():
    made = b"".join(one.detach().numpy().tobytes() for one in net.parameters())
    return hashlib.sha256(made).hexdigest()
train(3)
"""
BUCKET = "DDP bucket 0: layers.0.linear ... layers.1.linear (4 parameters)"
STEP = [
    wire.Issuer("forward", "layers.0", "Net"),
    wire.Issuer("forward", "layers.1", "Net"),
    wire.Issuer("backward", "", "Net", BUCKET, ("layers.0.linear", "layers.1.linear")),
]


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with interactive_ranks(tmp_path_factory.mktemp("modules") / "rings", 2) as found:
        run(tuple(found), MODEL)
        yield tuple(found)


@pytest.fixture
def ranks(trainers: Ranks) -> Ranks:
    switch(trainers, on=False)
    return trainers


def switch(ranks: Ranks, *, on: bool) -> None:
    for rank in ranks:
        reply, _ = rank.request(ask="ChangeRecording", settings={"modules": on})
        assert (reply["error"], reply["recorded"]["settings"]["modules"]) == ("", on), reply


def newest(rank: InteractiveRank, count: int) -> list[wire.Issuer | None]:
    """Of the last ops of a rank."""
    rank.ring.refresh()
    return [issuer for _, issuer in issuers(rank.ring)[-count:]]


def test_a_part_is_never_taken_for_the_whole(ranks: Ranks) -> None:
    """The wrapper comes while the whole runs: what it calls then is left out.

    It comes first: a wrapper stays.
    """
    for rank in ranks:
        rank.start("saved['hold'] = True; train(1); saved.clear(); train(1)")
    wait_for(lambda: all("inside" in notes(rank) for rank in ranks), "the forward")
    switch(ranks, on=True)
    for rank in ranks:
        rank.expect("done")
    first, second = newest(ranks[0], 6)[:3], newest(ranks[0], 6)[3:]
    assert first[:2] == [None, None]
    assert second == STEP


def test_ops_are_named_once_it_is_on_and_no_more_once_it_is_off(ranks: Ranks) -> None:
    run(ranks, "train(1)")
    assert newest(ranks[0], 3) == [None] * 3
    for _ in range(2):
        switch(ranks, on=True)
        run(ranks, "train(2)")
        assert newest(ranks[0], 6) == STEP * 2
        switch(ranks, on=False)
        run(ranks, "train(1)")
        assert newest(ranks[0], 3) == [None] * 3


def test_a_label_of_fsdp_that_ended_unseen_names_no_later_op(ranks: Ranks) -> None:
    label = "torch.profiler.record_function('FSDP::all_gather (layers.0)')"
    switch(ranks, on=True)
    run(ranks, f"train(1); label = {label}; label.__enter__()")
    switch(ranks, on=False)
    run(ranks, "label.__exit__(None, None, None)")
    switch(ranks, on=True)
    run(ranks, "train(1)")
    assert newest(ranks[0], 3) == STEP


def test_a_child_that_is_forked_records_none_and_is_not_disturbed(ranks: Ranks) -> None:
    switch(ranks, on=True)
    run(ranks, """
pid = os.fork()
if pid == 0:
    os._exit(0 if torch.nn.Identity()(3) == 3 else 1)  # no threads of torch's are in a child
assert os.waitpid(pid, 0)[1] == 0
train(1)
""")  # fmt: skip
    assert newest(ranks[0], 3) == STEP


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.long)])
def test_nothing_is_compiled_again_and_results_are_equal(ranks: Ranks, backend: str) -> None:
    """It comes last: it makes other models."""
    run(ranks, f"""
from torch._dynamo.utils import counters, compilation_time_metrics
def compiled():
    make()
    whole = torch.compile(ddp, backend={backend!r})
    net.layers[1].compile(backend={backend!r})
    return whole
def counted():
    compiles = len(compilation_time_metrics["_compile.compile_inner"])
    return compiles, *(dict(counters[name]) for name in ("stats", "frames", "graph_break"))
model = compiled()
train(8, model)
plain = digest()
torch._dynamo.reset(); counters.clear(); compilation_time_metrics.clear()
model = compiled()
train(4, model)
before = counted()
assert before[0] and before[1]
""")  # fmt: skip
    switch(ranks, on=True)
    run(ranks, "train(2, model)")
    switch(ranks, on=False)
    run(ranks, "train(2, model); assert counted() == before; assert digest() == plain")
