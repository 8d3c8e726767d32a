"""Profiles of ranks that record modules: labels around their calls, and what the model is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from features.profile.test_requests import ask, stage
from frtop_probe.features.profile.files import MODULE_LABEL, profile_file
from frtop_probe.ring.reader import Ring
from frtop_tui.features.profile.model import ModelDescription
from frtop_tui.features.profile.module_ops import (
    SUBCLASS,
    TRIVIAL,
    ModuleOp,
    TraceEvent,
    module_ops,
)
from frtop_tui.features.profile.profiled_modules_words import (
    ProfiledModules,
    profiled_document,
)
from frtop_tui.features.profile.reader import ANNOTATION
from frtop_tui.job.statistics import ModuleRow
from frtop_tui.text.module_words import GLOBAL
from recorder.interactive_rank import InteractiveRank, interactive_ranks
from recorder.rank_runner import issuers, notes

pytest.importorskip("frtop_probe.features.modules")
pytestmark = pytest.mark.torch

MODEL = """
from frtop_probe.features.modules.in_rank.issuers import CURRENT
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module
)
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
        self.layers, self.again = torch.nn.ModuleList(MLP() for _ in range(2)), again
        self.out = torch.nn.Linear(8, 4)
    def forward(self, x):
        for layer in self.layers:
            with set_checkpoint_early_stop(False):
                x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.out(x)
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
given = torch.randn(2, 8, requires_grad=True)
def make(again=False):
    global net, optimizer
    net = Net(again)
    for layer in net.layers:
        parallelize_module(layer, mesh, {"net1": ColwiseParallel(), "net2": RowwiseParallel()})
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
def steps(count):
    for _ in range(count):
        optimizer.zero_grad()
        given.grad = None
        net(given).sum().backward()
        optimizer.step()
def counted():
    from torch.distributed.tensor.debug import CommDebugMode
    optimizer.zero_grad()
    given.grad = None
    with (mode := CommDebugMode()): net(given).sum().backward()
    return [
        (module, str(op["name"]), op["is_bw"], op["is_activation_checkpointing"],
         bool(op["input_shape"]))
        for module, known in mode.comm_module_operation_counts.items()
        for op in known["operations_list"]
    ]
def labels():
    return CURRENT.calls.label
"""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveRank]:
    folder = tmp_path_factory.mktemp("modules") / "rings"
    with interactive_ranks(folder, 1, FRTOP_MODULES="1") as (one,):
        one.run(MODEL + "make(); steps(1)")
        yield one


@pytest.fixture
def rank(trainer: InteractiveRank) -> InteractiveRank:
    trainer.run("[one.stop() for one in lifecycle.recorder.features]")
    return trainer


def model_of(rank: InteractiveRank) -> ModelDescription:
    return msgspec.json.decode(
        profile_file(rank.ring.path, "modules").read_bytes(), type=ModelDescription
    )


def events_of(rank: InteractiveRank) -> list[TraceEvent]:
    events = json.loads(profile_file(rank.ring.path, "trace").read_bytes())["traceEvents"]
    return [
        TraceEvent(one["ts"], one["ts"] + one["dur"], str(one["tid"]), one["name"],
                   one.get("args", {}).get("Sequence number", -1),
                   annotation=one["cat"] == ANNOTATION)
        for one in events
        if one.get("cat") in ("cpu_op", ANNOTATION)
    ]  # fmt: skip


def test_calls_are_labelled_while_a_profile_runs_and_the_model_is_described(
    rank: InteractiveRank,
) -> None:
    rank.run("assert labels() is None")
    ask(rank, "begin", steps=1)
    rank.run("steps(1); assert labels() is not None; steps(2); assert labels() is None")
    told = stage(rank, "ready")
    assert {one["name"] for one in told["files"]} == {"trace", "modules"}
    called = Counter(
        one.name[len(MODULE_LABEL) :]
        for one in events_of(rank)
        if one.name.startswith(MODULE_LABEL)
    )
    paths = ["", *(f".layers.{n}{part}" for n in (0, 1) for part in ("", ".net1", ".net2")), ".out"]
    assert called == dict.fromkeys([f"Net{path}" for path in paths], 1)
    model = model_of(rank)
    assert model.has_dtensors
    assert not model.left_out
    known = {one.path: one for one in model.modules}
    assert known["layers.0.net1"].type == "torch.nn.modules.linear.Linear"
    weight = known["layers.0.net1"].parameters[0]
    assert (weight.name, weight.dtype, weight.shape) == ("weight", "float32", (16, 8))
    assert (weight.placements, weight.mesh, weight.local) == ("(Shard(dim=0),)", "tp=1", (16, 8))
    assert known["out"].parameters[0].placements == ""
    assert len(known) == len(model.modules)
    assert {"aten::linear", "aten::to"} <= set(model.composite)
    assert not {"aten::mm", "aten::t", "aten::sum"} & set(model.composite)
    assert profile_file(rank.ring.path, "modules").stat().st_mode & 0o777 == 0o600
    ask(rank, "withdraw")
    assert not profile_file(rank.ring.path, "modules").exists()


def test_what_cannot_be_described_costs_the_description_and_nothing_else(
    rank: InteractiveRank,
) -> None:
    """An order that is withdrawn, or an exception of ours, leaves no label on."""
    ask(rank, "begin", steps=50)
    rank.run("steps(1); assert labels() is not None")
    ask(rank, "withdraw")
    rank.run("steps(1); assert labels() is None and not torch.autograd._profiler_enabled()")
    rank.run("""
from frtop_probe.features.modules.in_rank import module_profile
saved["described"] = module_profile.described
module_profile.described = lambda *_: 1 / 0
[one.stop() for one in lifecycle.recorder.features]  # forgets the order
""")
    ask(rank, "begin", steps=1)
    rank.run("steps(3); assert labels() is None; module_profile.described = saved['described']")
    assert {one["name"] for one in stage(rank, "ready")["files"]} == {"trace"}
    assert not notes(rank.ring)


def test_the_json_has_the_structure_of_comm_debug_modes_dump(
    rank: InteractiveRank, tmp_path: Path
) -> None:
    """Of the same program: each of its nodes with its fields, their types, and its collectives."""
    file = tmp_path / "dump.json"
    rank.run(f"""
from torch.distributed.tensor.debug import CommDebugMode
saved["hook"] = net.register_forward_pre_hook(lambda *_: dist.all_reduce(torch.ones(1)))
steps(1)
with (mode := CommDebugMode()): net(given).sum().backward()
mode.generate_json_dump({str(file)!r}, noise_level=2)
""")
    before = len(issuers(Ring(rank.ring.path)))
    ask(rank, "begin", steps=1)
    rank.run("steps(3); saved.pop('hook').remove()")
    stage(rank, "ready")
    step = issuers(Ring(rank.ring.path))[before:][-1:]  # each step has one
    rows = [ModuleRow(issuer, kind, (0,), 1, 4) for kind, issuer in step if issuer is not None]
    model = model_of(rank)
    ops = module_ops(events_of(rank), frozenset(model.composite), dtensors=True)
    found = ProfiledModules((0,), tuple(rows), ops, {0: model})
    ours = json.loads(json.dumps(profiled_document(found, 2)))
    theirs = json.loads(file.read_text())
    _compare(theirs, {one["fqn"]: one for one in _walked(ours)})
    assert ours["collectives_forward"] == [["all_reduce", 1]]
    for one in _walked(ours):
        assert set(theirs) <= set(one)
        _same_shapes(one)


def _walked(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node["children"]:
        yield from _walked(child)


def _compare(theirs: dict[str, Any], ours: dict[str, dict[str, Any]]) -> None:
    """The trees: theirs has no lists of modules, because nobody calls them."""
    for node in _walked(theirs):
        mine = ours[node["fqn"]]
        _same_shapes(node)
        assert mine["module_type"] == node["module_type"].removeprefix("class ").strip("'")
        assert mine["parameters"] == node["parameters"]
        for phase in ("forward", "backward"):
            counts = [count for _, count in node[f"collectives_{phase}"]]
            assert [count for _, count in mine[f"collectives_{phase}"]] == counts
            names = {one["name"].rpartition(".")[0] for one in node[f"operations_{phase}"]}
            known = {one["op"].replace("::", ".") for one in mine[f"operations_{phase}"]}
            if phase == "forward" and node["fqn"] != GLOBAL:
                assert {one for one in names if one.startswith("aten.")} == known


def _same_shapes(node: dict[str, Any]) -> None:
    """What the page relies on."""
    assert isinstance(node["fqn"], str)
    assert isinstance(node["module_type"], str)
    for field in ("parameters", "collectives_forward", "collectives_backward"):
        assert all(isinstance(one, list) and len(one) == 2 for one in node[field])
    for phase in ("forward", "backward", "checkpointing"):
        for one in node[f"operations_{phase}"]:
            assert isinstance(one["name"], str)
            assert isinstance(one["device_mesh"], str)
            assert isinstance(one["is_bw"], bool)
            for field in ("input_shape", "input_sharding"):
                assert all(isinstance(text, str) for text in one[field])


@pytest.mark.long
@pytest.mark.parametrize("again", [False, True])
def test_ops_by_module_are_those_of_comm_debug_mode(tmp_path: Path, again: bool) -> None:
    """Of ops that are not trivial: the mode itself detaches parameters, and others are views."""
    with interactive_ranks(tmp_path / "rings", 2, FRTOP_MODULES="1") as ranks:

        def all_run(code: str) -> None:
            for one in ranks:
                one.start(code)
            for one in ranks:
                one.expect("done")

        all_run(MODEL + f"make({again}); steps(2)")
        for one in ranks:
            ask(one, "begin", steps=1)
        all_run("steps(3)")
        first = ranks[0]
        stage(first, "ready")
        model, events = model_of(first), events_of(first)
        file = tmp_path / "counted"
        all_run(f"open(f'{file}{{rank}}', 'w').write(json.dumps(counted()))")
        counted = json.loads((tmp_path / "counted0").read_text())
    if not any(one.name == SUBCLASS for one in events):
        pytest.skip("profiles of this torch do not tell ops on DTensors")
    ops = module_ops(events, frozenset(model.composite), dtensors=True).ops
    theirs = _of_mode(counted)
    ours = _as_mode(ops)
    assert sum(theirs.values()) > 30
    # A result that is still waited for is taken over by a subclass as well.
    wrong = ("Net.out", "backward", "aten::mm", True)
    assert ours.pop(wrong, 0) in (0, 1)
    assert sum_by(ours, 1, 2, 3) == sum_by(theirs, 1, 2, 3)
    in_forward = {key: n for key, n in ours.items() if key[1] == "forward" and key[0]}
    assert in_forward == {
        key: n for key, n in theirs.items() if key[1] == "forward" and key[0] != "Global"
    }


Key = tuple[str, str, str, bool]


def _of_mode(rows: list[list[Any]]) -> Counter[Key]:
    found: Counter[Key] = Counter()
    for module, name, backward, again, of_dtensors in rows:
        op = name.rpartition(".")[0].replace(".", "::", 1)
        if op not in TRIVIAL and not op.startswith("_c10d"):
            phase = "backward" if again or backward else "forward"
            found[module, phase, op, of_dtensors] += 1
    return found


def _as_mode(ops: Counter[ModuleOp]) -> Counter[Key]:
    """It knows no optimizer, and takes what is outside of modules for a forward.

    What comes in a backward after a module was run again it takes for that; so this is one phase.
    """
    found: Counter[Key] = Counter()
    for op, count in ops.items():
        if op.name not in TRIVIAL and op.phase != "optimizer":
            phase = {"outside": "forward", "recompute": "backward"}.get(op.phase, op.phase)
            found[op.module, phase, op.name, op.of_dtensors] += count
    return found


def sum_by(found: Counter[Key], *fields: int) -> Counter[tuple[Any, ...]]:
    sums: Counter[tuple[Any, ...]] = Counter()
    for key, count in found.items():
        sums[tuple(key[field] for field in fields)] += count
    return sums
