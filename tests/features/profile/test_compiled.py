"""A compiled model that is profiled: not compiled anew, no graph broken, no bit different."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from features.profile.test_requests import ask, stage
from frtop_probe.features.profile.files import profile_file
from recorder.interactive_rank import InteractiveRank, interactive_ranks

pytestmark = [pytest.mark.torch, pytest.mark.long]
TRAINING = """
import torch._dynamo
from torch._dynamo.utils import counters
def train(count, between=None):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    model = torch.compile(net, backend="aot_eager")
    losses = []
    for step in range(count):
        if between is not None:
            between(step)
        loss = model(torch.randn(8, 16)).square().mean()
        loss.backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses), [parameter.detach().clone() for parameter in net.parameters()]
def counted(between=None):
    torch._dynamo.reset()
    counters.clear()
    found = train(12, between)
    breaks = sum(counters["graph_break"].values())
    return found, (counters["stats"]["unique_graphs"], breaks, dict(counters["recompile_limit"]))
"""


@pytest.mark.parametrize("options", [{}, {"stacks": True, "shapes": True, "execution": True}])
def test_a_compiled_model_is_not_compiled_anew(tmp_path: Path, options: dict[str, bool]) -> None:
    with interactive_ranks(tmp_path / "rings", 1) as (rank,):
        rank.run(TRAINING)
        rank.run("train(1)")  # the first compilation takes long, and nobody asks meanwhile
        rank.start("""
def wait(step):
    if step == 4:
        profiled = [one for one in lifecycle.recorder.features if "ProfileRank" in one.handlers]
        wait_for(lambda: profiled[0]._session is not None)
    saved.setdefault("on", []).append(torch.autograd._profiler_enabled())
saved["profiled"] = counted(wait)
""")
        ask(rank, "begin", steps=4, **options)
        stage(rank, "ready")
        rank.expect("done")
        names = names_of(rank)
        ask(rank, "withdraw")
        rank.run("""
saved["plain"] = counted()
assert saved["plain"][1][0] > 0
assert True in saved["on"] and not saved["on"][-1], saved["on"]
(losses, parameters), counts = saved["plain"]
(again, after), with_profile = saved["profiled"]
assert torch.equal(losses, again), (losses, again)
assert all(torch.equal(one, other) for one, other in zip(parameters, after))
assert counts == with_profile, (counts, with_profile)
""")
        assert any(name.startswith("ProfilerStep#") for name in names)
        assert any("CompiledFunction" in name for name in names)


def names_of(rank: InteractiveRank) -> set[str]:
    found = json.loads(profile_file(rank.ring.path, "trace").read_bytes())
    return {event["name"] for event in found["traceEvents"]}
