"""Models that Inductor has compiled, as they are with frtop and without."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from frtop_probe import wire
from frtop_probe.ring.layout import MarkKind
from recorder.rank_runner import checked, issuers, marks, notes, run

COMPILER = os.environ.get("CXX", "g++")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason="Inductor needs a C++ compiler"),
]

KIND = "all_to_all_single"
PROGRAM = """
    import hashlib, json, os, sys, time
    import torch, torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    from torch._dynamo.utils import counters
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel as DDP

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        def forward(self, x):
            x = self.two(torch.nn.functional.gelu(self.one(x)))
            return x + functional.all_to_all_single_autograd(x, None, None, dist.group.WORLD)

    how, told = sys.argv[1:]
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = torch.nn.Sequential(Block(), torch.nn.Linear(16, 4))
    if how == "DDP":
        model = torch.compile(DDP(net))
    else:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for part in net:
            part.compile()
            fully_shard(part, mesh=mesh)
        model = fully_shard(net, mesh=mesh)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    torch.manual_seed(1 + dist.get_rank())

    if "FRTOP_OFF" in os.environ:
        ask = lambda *_, **__: {"stage": "ready"}
    else:
        from frtop_probe.recorder.process.lifecycle import lifecycle
        from frtop_probe.features.profile.files import profile_file
        recorder = lifecycle.recorder
        def ask(action, **options):
            order = {"order": "0123456789abcdef", "wait_s": 60, "action": action, **options}
            return recorder.requests.respond({"ask": "ProfileRank", **order}, None)[0]

    def observe():
        order = {"every": 1, "ops": 1000, "seconds": 60, "inputs": True, "steps": 100}
        recorder.requests.respond({"ask": "ChangeRecording", "settings": {"numbers": order}}, None)
        assert ask("begin", steps=2, shapes=True)["stage"] == "waiting"

    losses = []
    for step in range(8):
        if step == 4 and "FRTOP_OFF" not in os.environ:
            observe()
        optimizer.zero_grad()
        loss = model(torch.randn(6, 16)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        ask("status")
    deadline = time.monotonic() + 30
    while ask("status")["stage"] != "ready":
        assert time.monotonic() < deadline, ask("status")
        time.sleep(0.01)
    own = [one.to_local() if hasattr(one, "to_local") else one for one in net.parameters()]
    with torch.no_grad():
        digest = hashlib.sha256(b"".join(one.numpy().tobytes() for one in own)).hexdigest()
    print(json.dumps([
        losses, digest, counters["stats"], sorted(counters["graph_break"].values()),
        counters["recompile_limit"], counters["inductor"]["extern_calls"],
    ]))
    if "FRTOP_OFF" not in os.environ:
        trace = json.loads(profile_file(recorder.ring.path, "trace").read_bytes())
        numbers = recorder.watch
        assert not numbers.failure, numbers.failure
        found = {
            "events": [one["name"] for one in trace["traceEvents"] if "name" in one],
            "samples": [[one.kind, one.role] for one in numbers.samples],
        }
        with open(f"{told}.{dist.get_rank()}", "w") as file:
            json.dump(found, file)
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["DDP", "FSDP2"])
def test_what_inductor_compiled_is_observed_and_trains_identically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("recorder.rank_runner.DEADLINE_S", 280.0)
    told = tmp_path / "told"

    def trained(name: str, **variables: Any) -> list[Any]:
        cache: dict[str, Any] = {
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"cache-{name}"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1",
        }
        return run(PROGRAM, tmp_path / name, how, str(told), ranks=2, **cache, **variables)

    bare = trained("none", FRTOP_OFF="1")
    assert [one.code for one in bare] == [0, 0], bare[0].err + bare[1].err
    ours = checked(trained("rings", FRTOP_PHASES="1", FRTOP_MODULES="1"))
    assert [one.out for one in ours] == [one.out for one in bare]

    for number, rank in enumerate(ours):
        assert not notes(rank.ring)
        assert len(marks(rank.ring, MarkKind.BACKWARD)) == 8
        issued = Counter(in_graphs(issuers(rank.ring), tmp_path / "cache-rings"))
        assert issued == {(KIND, "forward", "0"): 8, (KIND, "backward", "0"): 8}
        found = json.loads(told.with_suffix(f".{number}").read_text())
        sampled = Counter(role for kind, role in found["samples"])
        assert {"input", "output", "gradient", "parameter"} == set(sampled), found["samples"]
        assert [KIND, "input"] in found["samples"]
        events = Counter(found["events"])
        assert any(re.match("(graph_[0-9]+_)?cpp_fused_", name) for name in events), events
        assert events["CompiledFunction"] == events["CompiledFunctionBackward"] > 0
        assert events["frtop module Sequential"] >= 2  # wrappers have the name of what they wrap


def in_graphs(
    found: list[tuple[str, wire.Issuer | None]], cache: Path
) -> list[tuple[str, str, str]]:
    """The ops that compiled graphs have issued, of which all have the name of a file."""
    known = {file.stem for file in cache.rglob("*.py")}
    some = [(kind, one) for kind, one in found if one is not None and "graph" in one.part]
    assert {one.part.removeprefix("graph ") for _, one in some} <= known
    return [(kind, one.phase, one.path) for kind, one in some]
