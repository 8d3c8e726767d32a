"""Each op has the module and the phase that issued it, equal to what CommDebugMode counts."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from frtop_probe import wire
from frtop_probe.features.modules.in_rank import module_calls
from frtop_probe.features.modules.in_rank.module_calls import ModuleCalls, ThreadCalls
from recorder.rank_runner import checked, issuers, notes, run

pytestmark = pytest.mark.torch
Counts = Counter[tuple[str, str, str]]
"""Ops by module, phase and kind."""

REDUCED = """
    import torch, torch.distributed as dist
    class Reduced(torch.autograd.Function):
        @staticmethod
        def forward(_, x): return x.clone()
        @staticmethod
        def backward(_, given):
            given = given.contiguous()
            dist.all_reduce(given)
            return given
"""
COMMON = (
    REDUCED
    + """
    import json
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module
    )
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    class MLP(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net1, self.net2 = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        def forward(self, x):
            return self.net2(torch.relu(self.net1(x)))

    class Net(torch.nn.Module):
        def __init__(self, again=False):
            super().__init__()
            self.layers, self.again = torch.nn.ModuleList(MLP() for _ in range(3)), again
            self.out = torch.nn.Linear(8, 4)
        def forward(self, x):
            for layer in self.layers:
                with set_checkpoint_early_stop(False):  # or the last op is not issued again
                    x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
            return self.out(x)

    def sharded(net):
        for layer in net.layers: fully_shard(layer, mesh=mesh)
        return fully_shard(net, mesh=mesh)

    def tensor_parallel(net):
        for layer in net.layers:
            parallelize_module(
                layer, mesh, {"net1": ColwiseParallel(), "net2": RowwiseParallel()}
            )
        return net

    class Own(Net):
        def forward(self, x):
            return self.out(Reduced.apply(self.layers[0](x)))

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
"""
)

COUNTED = (
    COMMON
    + """
    counted = {}
    for name, make in {
        "tp": lambda: tensor_parallel(Net()),
        "tp again": lambda: tensor_parallel(Net(again=True)),
        "fsdp": lambda: sharded(Net()),
        "ddp": lambda: DDP(Net(), bucket_cap_mb=0.001),
        "own": Own,
    }.items():
        net = make()
        given = torch.randn(2, 8, requires_grad=True)
        net(given).sum().backward()
        mode = CommDebugMode()
        dist.monitored_barrier()
        dist.barrier()
        with mode: net(given).sum().backward()
        dist.barrier()
        counted[name] = [
            (module, phase, str(kind).rpartition(".")[2], count)
            for module, phases in mode.comm_module_counts.items()
            for phase, kinds in phases.items()
            for kind, count in kinds.items()
        ]
    if dist.get_rank() == 0: print(json.dumps(counted))
    dist.destroy_process_group()
"""
)
KINDS = {
    "_allgather_base_": "all_gather_into_tensor",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "allreduce_": "all_reduce",
    "broadcast_": "broadcast",
}


def counted_by_torch(rows: list[list[Any]]) -> Counts:
    return Counter({
        (module.replace("FSDPNet", "Net"), phase, KINDS.get(kind, kind)): count
        for module, phase, kind, count in rows
        if module != "Global"
    })  # fmt: skip


def with_parents(found: Counts) -> Counts:
    """As CommDebugMode counts: in the module, and in all that contain it."""
    sums: Counts = Counter()
    for (module, phase, kind), count in found.items():
        parts = module.split(".")
        for length in range(1, len(parts) + 1):
            path = ".".join(parts[:length])
            if path != "Net.layers":  # a list, which is never called
                sums[path, phase, kind] += count
    return sums


def counted_by_us(issued: list[tuple[str, wire.Issuer | None]]) -> Counts:
    found: Counts = Counter()
    for kind, issuer in issued:
        assert issuer is not None
        phase = {"recompute": "backward"}.get(issuer.phase, issuer.phase)
        root = issuer.root.partition(" #")[0]  # former models of the class may still be there
        found[f"{root}.{issuer.path}".rstrip("."), phase, kind] += 1
    return found


def between_barriers(
    found: list[tuple[str, wire.Issuer | None]],
) -> list[list[tuple[str, wire.Issuer | None]]]:
    """What each model issued while CommDebugMode counted."""
    at = [place for place, (kind, _) in enumerate(found) if kind == "barrier"]
    return [found[a + 1 : b] for a, b in zip(at[::2], at[1::2], strict=True)]


@pytest.mark.long
def test_counts_by_module_are_those_of_comm_debug_mode(tmp_path: Path) -> None:
    ended = checked(run(COUNTED, tmp_path / "rings", ranks=2, FRTOP_MODULES="1"))
    torchs = {name: counted_by_torch(rows) for name, rows in json.loads(ended[0].out).items()}
    assert [one for one in torchs if not torchs[one]] == []
    for rank in ended:
        each = dict(zip(torchs, between_barriers(issuers(rank.ring)), strict=True))
        ours = {name: counted_by_us(found) for name, found in each.items()}
        for exact in ("tp", "tp again"):
            assert with_parents(ours[exact]) == torchs[exact]
        # CommDebugMode has the last module whose gradients were asked for; the op is the root's.
        assert ours["own"] == {("Own", "backward", "all_reduce"): 1}
        assert torchs["own"]["Own", "backward", "all_reduce"] == 1
        _compare_sharded(ours["fsdp"], torchs["fsdp"])
        again = [one.phase for _, one in each["tp again"] if one is not None]
        assert Counter(again) == {"forward": 3, "backward": 3, "recompute": 3}
        _compare_buckets(each["ddp"], torchs["ddp"])


def _compare_sharded(ours: Counts, torchs: Counts) -> None:
    """Forwards agree module by module.

    In a backward CommDebugMode has the module whose gradients are computed; FSDP2 gathers the
    parameters of the next one meanwhile, and reduces those of the root at the end. We have the
    module whose parameters they are, so there only the sums over the model agree.
    """
    for phase, kind in {key[1:] for key in torchs}:
        assert with_parents(ours)["Net", phase, kind] == torchs["Net", phase, kind]
    forward = {key: count for key, count in with_parents(ours).items() if key[1] == "forward"}
    assert forward == {key: count for key, count in torchs.items() if key[1] == "forward"}
    layers = [f"Net.layers.{place}" for place in range(3)]
    gathered = {key[0]: n for key, n in ours.items() if key[1:] == ("backward", GATHER)}
    assert gathered == dict.fromkeys(layers, 1)  # the root keeps its own
    reduced = {key[0]: n for key, n in ours.items() if key[1:] == ("backward", SCATTER)}
    assert reduced == dict.fromkeys(["Net", *layers], 1)


GATHER, SCATTER = "all_gather_into_tensor", "reduce_scatter_tensor"


def _compare_buckets(issued: list[tuple[str, wire.Issuer | None]], torchs: Counts) -> None:
    """CommDebugMode has the module that ran; a bucket belongs to those whose gradients it has."""
    backward = [one for _, one in issued if one is not None and one.phase == "backward"]
    assert len(backward) == torchs["DistributedDataParallel", "backward", "all_reduce"]
    assert [one.part for one in backward] == [
        "DDP bucket 0: layers.2.net1 ... out (6 parameters)",
        "DDP bucket 1: layers.1.net1 ... layers.1.net2 (4 parameters)",
        "DDP bucket 2: layers.0.net1 ... layers.0.net2 (4 parameters)",
    ]
    named = [module for one in backward for module in one.modules]
    layers = [f"layers.{place}.{net}" for place in range(3) for net in ("net1", "net2")]
    assert sorted(named) == [*layers, "out"]
    assert {(one.root.partition(" #")[0], one.path) for one in backward} == {("Net", "")}


NAMED = (
    REDUCED
    + """
    from torch.nn.parallel import DistributedDataParallel as DDP

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)
        def forward(self, x):
            if x.sum() > 1e9: raise ValueError
            dist.broadcast(x.detach().clone(), 0)
            return self.linear(Reduced.apply(x))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(Layer() for _ in range(2))
        def forward(self, x):
            for layer in self.layers: x = layer(x)
            return x

    class Reducing(torch.optim.SGD):
        def step(self, closure=None):
            dist.all_reduce(torch.ones(1))
            return super().step(closure)

    dist.init_process_group("gloo")
    net = DDP(Net())
    optimizer = Reducing(net.parameters(), lr=0.1)
    given = torch.ones(2, 8, requires_grad=True)
    try:
        net(given * 1e9)
    except ValueError:
        pass
    dist.barrier()
    for _ in range(2):
        net(given).sum().backward()
        optimizer.step()
    dist.destroy_process_group()
"""
)


def test_ops_are_named_by_module_and_phase(tmp_path: Path) -> None:
    """DDP wraps the model: it is no part of the path. An exception in a module leaves nothing."""
    (ended,) = checked(run(NAMED, tmp_path / "rings", FRTOP_MODULES="1"))
    found = issuers(ended.ring)
    barrier = [kind for kind, _ in found].index("barrier")
    assert found[barrier][1] == wire.Issuer("outside")
    forward = [wire.Issuer("forward", f"layers.{place}", "Net") for place in (0, 1)]
    modules = "layers.0.linear", "layers.1.linear"
    bucket = "DDP bucket 0: layers.0.linear ... layers.1.linear (4 parameters)"
    step = [
        *forward,
        wire.Issuer("backward", "layers.1", "Net"),
        wire.Issuer("backward", "layers.0", "Net"),
        wire.Issuer("backward", "", "Net", bucket, modules),
        wire.Issuer("optimizer"),
    ]
    steps = [issuer for _, issuer in found[barrier + 1 :]]
    # Which comes first, the bucket or the input's gradient, is up to the engine.
    rebuilt = [wire.Issuer("forward", "", "Net")] * 2  # DDP agrees on new buckets, once
    assert sorted(map(str, steps)) == sorted(map(str, step * 2 + rebuilt))
    assert steps[:2] == forward


def test_wrappers_of_torch_are_no_part_of_a_path(tmp_path: Path) -> None:
    program = """
        import gc, sys, torch, torch.distributed as dist
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                inner = torch.nn.Sequential(torch.nn.Linear(4, 4))
                self.block = checkpoint_wrapper(inner)
            def forward(self, x):
                return self.block(x)

        dist.init_process_group("gloo")
        given = torch.ones(2, 4, requires_grad=True)
        net = DDP(torch.compile(Net(), backend="eager"))
        with torch._dynamo.config.patch(disable=True):
            net(given).sum().backward()
        dist.barrier()
        del net
        gc.collect()  # or there are two models of one class
        net, mesh = Net(), init_device_mesh("cpu", (2,))
        fully_shard([one for one in net.modules() if type(one) is torch.nn.Linear], mesh=mesh)
        fully_shard(net, mesh=mesh)
        net(given).sum().backward()
        dist.destroy_process_group()
    """
    ended, _ = checked(run(program, tmp_path / "rings", ranks=2, FRTOP_MODULES="1"))
    found = issuers(ended.ring)
    barrier = [kind for kind, _ in found].index("barrier")
    buckets = [one for _, one in found[:barrier] if one is not None and one.part]
    part = "DDP bucket 0: block.0 (2 parameters)"
    assert buckets == [wire.Issuer("backward", "", "Net", part, ("block.0",))]
    sharded = {(kind, str(one)) for kind, one in found if kind in (GATHER, SCATTER)}
    assert sharded == {
        (kind, str(wire.Issuer(phase, "block.0", "Net")))
        for kind, phase in (
            (GATHER, "forward"),
            (GATHER, "backward"),
            (SCATTER, "backward"),
        )
    }


@pytest.mark.long
def test_a_backward_that_is_a_compiled_graph_is_a_backward(tmp_path: Path) -> None:
    program = """
        import torch, torch.distributed as dist
        import torch._dynamo.compiled_autograd
        import torch.distributed._functional_collectives as functional

        class Net(torch.nn.Module):
            def forward(self, x):
                return functional.all_to_all_single_autograd(x * x, None, None, dist.group.WORLD)

        dist.init_process_group("gloo")
        net, given = Net(), torch.ones(2, 4, requires_grad=True)
        for _ in range(2):
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
                net(given).sum().backward()
        dist.destroy_process_group()
    """
    (ended,) = checked(run(program, tmp_path / "rings", FRTOP_MODULES="1"))
    found = [one for kind, one in issuers(ended.ring) if kind == "all_to_all_single"]
    assert found[::2] == [wire.Issuer("forward", "", "Net")] * 2
    for one in found[1::2]:
        assert one is not None
        assert (one.phase, one.root, one.path) == ("backward", "", "")
        assert one.part.startswith("graph eval_with_key")


def test_a_torch_that_surprises_us_costs_the_modules_and_nothing_else(tmp_path: Path) -> None:
    program = """
        import torch, torch.distributed as dist
        from frtop_probe.features.modules.in_rank.module_names import ModuleNames
        ModuleNames.of = lambda *_: 1 / 0
        class Reduces(torch.nn.Module):
            def forward(self, x):
                dist.all_reduce(x)
                return x
        dist.init_process_group("gloo")
        for _ in range(2): Reduces()(torch.ones(1))
        dist.destroy_process_group()
    """
    (ended,) = checked(run(program, tmp_path / "rings", FRTOP_MODULES="1"))
    assert [issuer for _, issuer in issuers(ended.ring)] == [None, None]
    (note,) = notes(ended.ring)
    assert note.startswith("modules are no longer recorded (ZeroDivisionError")


class Module:
    """Stands for a module: only its identity matters."""


def test_a_node_belongs_to_the_innermost_module_that_ran_when_it_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module_calls, "MAX_BOUNDARIES", 8)
    calls, roots = ThreadCalls(), {}  # type: ignore[var-annotated]
    outer, inner = Module(), Module()
    calls.enter(outer, 10, roots)
    calls.enter(inner, 10, roots)  # made no node before
    calls.leave(1, 12)
    calls.leave(0, 15)
    made = [calls.owner_of(number) for number in range(9, 17)]
    assert made == [None, inner, inner, outer, outer, outer, None, None]
    assert [one() for one in roots.values()] == [outer]
    for number in range(20, 60, 2):
        calls.enter(inner, number, roots)
        calls.leave(0, number + 1)
    assert len(calls.starts) == len(calls.owners) <= 11
    assert calls.owner_of(58) is inner
    assert calls.owner_of(10) is None  # forgotten
    calls.enter(outer, 3, roots)  # numbers began anew
    assert (calls.owner_of(3), calls.owner_of(58)) == (outer, outer)


def test_nodes_on_a_device_are_those_of_the_thread_that_began_the_backward() -> None:
    several = ModuleCalls()
    engine = ThreadCalls()
    assert several.makers(engine) is None
    own = several.of_thread()
    assert own is not None
    first = several.backward_begins()
    assert several.makers(own) is several.makers(engine) is own
    thread = threading.Thread(target=several.backward_begins)
    thread.start()
    thread.join()
    assert several.makers(own) is own
    assert several.makers(engine) is None  # of two threads nobody knows whose it is
    several.backward_ends(first)
    assert several.makers(engine) not in (None, own)
