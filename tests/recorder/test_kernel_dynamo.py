"""The recorder does not change compiled training: results are equal to the last bit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from frtop_probe.ring.layout import MarkKind
from recorder.rank_runner import marks, run

pytestmark = pytest.mark.torch

SHARDED = """
    import hashlib, sys, torch, torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    import torch._logging
    torch._logging.set_logs(recompiles=True, graph_breaks=True)

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(3))
    )
    for block in net:
        if sys.argv[1] == "blocks":
            block.compile(backend="aot_eager")
        fully_shard(block)
    fully_shard(net)
    model = torch.compile(net, backend="aot_eager") if sys.argv[1] == "whole" else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    torch.manual_seed(1 + dist.get_rank())
    alone = torch.ones(1, requires_grad=True)
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(6, 8)).sum()
        (own,) = torch.autograd.grad((alone * alone).sum(), [alone])
        (loss * own.item()).backward()
        optimizer.step()
    with torch.no_grad():
        model(torch.randn(6, 8))
        digest = hashlib.sha256(
            b"".join(p.to_local().numpy().tobytes() for p in net.parameters())
        )
    print(digest.hexdigest())
    dist.destroy_process_group()
"""


OWN_CALLS = """
    import sys, frtop_probe, torch
    import torch.distributed as dist

    def model(x):
        frtop_probe.report(loss=x.sum())
        frtop_probe.annotate("traced")
        frtop_probe.step(samples=4)
        return x * 2

    whole = torch.compile(model, backend="aot_eager", fullgraph=True)
    print(whole(torch.ones(4)).sum().item())  # before any group
    if sys.argv[1] == "recorded":
        dist.init_process_group("gloo")
        torch._dynamo.reset()
        print(whole(torch.ones(4)).sum().item())
        frtop_probe.report(1, loss=3.0)
"""


@pytest.mark.parametrize("how", ["recorded", pytest.param("bare", marks=pytest.mark.long)])
def test_calls_of_ours_in_a_compiled_function_do_nothing(tmp_path: Path, how: str) -> None:
    (rank,) = run(OWN_CALLS, tmp_path / "rings", how, prepared=how == "recorded")
    assert rank.code == 0, rank.err


@pytest.mark.long
@pytest.mark.parametrize("how", ["eager", "blocks", "whole"])
def test_fsdp2_trains_identically_while_phases_are_recorded(tmp_path: Path, how: str) -> None:
    ours = run(SHARDED, tmp_path / "rings", how, ranks=2, FRTOP_PHASES="1", FRTOP_MODULES="1")
    bare = run(SHARDED, tmp_path / "none", how, ranks=2, FRTOP_OFF="1")
    for with_us, without in zip(ours, bare, strict=True):
        assert (with_us.code, without.code) == (0, 0), with_us.err + without.err
        assert with_us.out == without.out
        _same_compilation(with_us.err, without.err)
        rows = marks(with_us.ring, MarkKind.FORWARD, MarkKind.BACKWARD, MarkKind.OPTIMIZER)
        step = ["forward", "backward", "backward", "optimizer"]
        assert [row.kind.name.lower() for row in rows] == step * 4  # an evaluation is no forward
        assert all(a.end_ns <= b.begin_ns for a, b in pairwise(rows))


def _same_compilation(with_us: str, without: str) -> None:
    # Where Dynamo goes through calls of modules with hooks, the wrappers stand in its stacks.
    ours = [line for line in with_us.splitlines() if "frtop_probe" in line]
    assert all("module_calls.py" in line or "phases.py" in line for line in ours)
    for word in ("Recompiling", "Graph break", "WON'T CONVERT"):
        assert with_us.count(word) == without.count(word)
