"""The recorder does not change compiled training: results are equal to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe.ring.layout import StatusCell
from recorder.rank_runner import kinds, run

pytestmark = pytest.mark.torch

PROGRAM = """
    import hashlib, logging, os, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    import torch._logging
    torch._logging.set_logs(recompiles=True, graph_breaks=True)

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )
    model = torch.compile(DDP(net), backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    @torch.compile(backend="eager")
    def step():
        optimizer.step()

    torch.manual_seed(1 + dist.get_rank())
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(6, 8)).sum().backward()
        optimizer.step()
    step()
    with torch.no_grad():
        digest = hashlib.sha256(b"".join(p.numpy().tobytes() for p in net.parameters()))
    print(digest.hexdigest())
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_compiled_ddp_trains_identically_and_dynamo_skips_the_hook(
    tmp_path: Path, ranks: int
) -> None:
    ours = run(PROGRAM, tmp_path / "rings", ranks=ranks)
    bare = run(PROGRAM, tmp_path / "none", ranks=ranks, FRTOP_OFF="1")
    for ended in (*ours, *bare):
        assert ended.code == 0, ended.err
    assert len({ended.out for ended in (*ours, *bare)}) == 1
    for with_us, without in zip(ours, bare, strict=True):
        assert "frtop_probe" not in with_us.err
        for word in ("Recompiling", "Graph break", "WON'T CONVERT"):
            assert with_us.err.count(word) == without.err.count(word)
        assert with_us.ring.cell(StatusCell.HOOK_ERRORS) == 0
        assert with_us.ring.cell(StatusCell.STEP) == 4
        assert {"broadcast", "all_reduce"} <= set(kinds(with_us.ring))
