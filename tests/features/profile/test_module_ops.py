"""Ops of a profile by module: what is counted, at which level, in which phase."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from frtop_tui.cli import main
from frtop_tui.errors import FrtopError
from frtop_tui.features.profile import content as profile_content
from frtop_tui.features.profile.merged import BEGAN_BEFORE
from frtop_tui.features.profile.model import ProfileOptions, ProfileProgress
from frtop_tui.features.profile.module_ops import (
    SUBCLASS,
    ModuleOp,
    ModulePlace,
    TraceEvent,
    module_ops,
)
from frtop_tui.features.profile.profiled_modules_words import NO_DTENSORS
from frtop_tui.features.profile.reader import read_profile
from frtop_tui.features.profile.words import result_lines
from json_schemas import read_document

COMPOSITE = frozenset({"aten::linear", "aten::to"})
NODE = "autograd::engine::evaluate_function: "
Nested = tuple[str, int, list[Any]]
"""Name, sequence number and what is inside."""

STEP: list[Nested] = [
    ("frtop module Net", -1, [
        ("frtop module Net.mlp", -1, [
            ("aten::linear", 10, [
                ("aten::t", 10, [("PythonSubclass", -1, [("aten::t", -1, [
                    ("aten::transpose", -1, [])])])]),
                ("aten::addmm", 11, [("PythonSubclass", -1, [
                    ("aten::div", -1, [("aten::copy_", -1, [])]),
                    ("aten::addmm", -1, [("PythonSubclass", -1, [("aten::addmm", -1, [])])]),
                    ("_c10d_functional::all_reduce", -1, [("c10d::allreduce_", -1, [])]),
                ])]),
            ]),
        ]),
        ("aten::mul", 12, [("PythonSubclass", -1, [
            ("_c10d_functional::wait_tensor", -1, []), ("aten::mul", -1, []),
        ])]),
    ]),
    ("aten::sum", 13, [("aten::sum", -1, [])]),
    (NODE + "SumBackward0", 13, [("SumBackward0", 13, [("aten::expand", -1, [])])]),
    (NODE + "AddmmBackward0", 11, [("AddmmBackward0", 11, [
        ("aten::mm", -1, []),
        ("frtop module Net.again", -1, [("aten::relu", 20, [])]),
    ])]),
    (NODE + "MulBackward0", -1, [  # it has hooks, which run before it
        ("LABEL::pre_backward", -1, [("aten::empty", -1, [])]),
        ("MulBackward0", 12, [("aten::mul", -1, []), ("Other", 11, [("aten::neg", -1, [])])]),
    ]),
    (NODE + "ReluBackward0", 20, [("aten::threshold_backward", -1, [])]),
    (NODE + "torch::autograd::AccumulateGrad", -1, [
        ("torch::autograd::AccumulateGrad", -1, [("aten::detach", -1, [("detach", -1, [
            ("PythonSubclass", -1, [("aten::detach", -1, [])])])])]),
    ]),
    ("Optimizer.step#SGD.step", -1, [("aten::add_", -1, [])]),
]  # fmt: skip


def events(step: list[Nested], thread: str = "7") -> list[TraceEvent]:
    """As torch writes them: start and end; an inner event lies within its outer one."""
    found: list[TraceEvent] = []
    clock = iter(range(100_000))

    def write(one: Nested) -> None:
        name, sequence, inside = one
        begin, place = next(clock), len(found)
        for inner in inside:
            write(inner)
        found.insert(place, TraceEvent(begin, next(clock), thread, name, sequence,
                                         annotation=name.startswith("LABEL")))  # fmt: skip

    for one in step:
        write(one)
    return found


def counted(*, dtensors: bool = True) -> Counter[ModuleOp]:
    return module_ops(reversed(events(STEP)), COMPOSITE, dtensors=dtensors).ops


def short(found: Counter[ModuleOp], level: int) -> dict[tuple[str, str, str, bool], int]:
    return {
        (op.module, op.phase, op.name.removeprefix("aten::"), op.of_dtensors): count
        for op, count in found.items()
        if op.is_at(level)
    }


def test_ops_are_those_that_a_dispatch_mode_sees() -> None:
    ops = counted()
    mlp = ("Net.mlp", "forward")
    assert short(ops, 1) == {(*mlp, "addmm", True): 1}
    assert short(ops, 2) == {
        (*mlp, "addmm", True): 1, (*mlp, "addmm", False): 1, (*mlp, "div", False): 1,
        ("Net", "forward", "mul", False): 1,
        ("", "outside", "sum", False): 1,
        ("", "backward", "expand", False): 1,
        ("Net.mlp", "backward", "mm", False): 1,
        ("Net", "backward", "empty", False): 1,
        ("Net", "backward", "mul", False): 1,
        ("Net", "backward", "neg", False): 1,
        ("Net.again", "recompute", "relu", False): 1,
        ("Net.again", "backward", "threshold_backward", False): 1,
        ("", "optimizer", "add_", False): 1,
    }  # fmt: skip
    trivial = {key: n for key, n in short(ops, 3).items() if key not in short(ops, 2)}
    assert trivial == {
        (*mlp, "t", True): 1, (*mlp, "t", False): 1,
        ("", "backward", "detach", True): 1, ("", "backward", "detach", False): 1,
    }  # fmt: skip


def test_without_dtensors_in_the_model_no_op_is_taken_for_one_on_them() -> None:
    ops = counted(dtensors=False)
    assert not short(ops, 1)
    assert short(ops, 2)["Net.mlp", "forward", "addmm", False] == 1


def test_times_are_of_the_module_that_runs_and_none_counts_twice() -> None:
    found = module_ops(events(STEP), COMPOSITE, dtensors=True)
    names = "frtop module Net", "frtop module Net.again", "Optimizer.step#SGD.step"
    net, again, step = (
        next(one for one in events(STEP) if one.name == name).lasted_ns for name in names
    )
    forwards = ModulePlace("Net", "forward"), ModulePlace("Net.mlp", "forward")
    assert sum(found.self_ns[one] for one in forwards) == net
    assert found.self_ns[ModulePlace("Net.again", "recompute")] == again
    assert found.self_ns[ModulePlace("", "optimizer")] == step
    assert sum(found.self_ns.values()) == sum(events([one])[0].lasted_ns for one in STEP)


def test_deep_nesting_and_many_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = [TraceEvent(n, 9_999 - n, "1", f"aten::op{n}") for n in range(4_000)]
    assert list(module_ops(deep, (), dtensors=True).ops.values()) == [1]
    monkeypatch.setattr("frtop_tui.features.profile.module_ops.MOST_ROWS", 3)
    flat = [TraceEvent(2 * n, 2 * n + 1, "1", f"aten::op{n % 5}") for n in range(20)]
    assert sorted(module_ops(flat, (), dtensors=True).ops.values()) == [4, 4, 4]


MODEL = {
    "modules": [
        {"root": "Net", "path": "", "type": "train.Net", "parameters": []},
        {"root": "Net", "path": "mlp", "type": "torch.nn.Linear", "parameters": [
            {"name": "weight", "dtype": "float32", "shape": [8, 4], "local": [4, 4],
             "placements": "(Shard(dim=0),)", "mesh": "tp=2"}]},
    ],
    "left_out": 0,
    "composite": sorted(COMPOSITE),
}  # fmt: skip


def profile(model: Any = MODEL, **about: Any) -> dict[str, Any]:
    """A merged file of one rank, 3, as `frtop profile` writes it."""
    torchs = [
        {"ph": "X", "cat": "user_annotation" if one.annotation else "cpu_op", "pid": 100_300,
         "tid": 7, "name": one.name, "ts": one.begin, "dur": one.end - one.begin,
         "args": {"Sequence number": one.sequence, "Input Dims": [[8, 4], [], [[2]], 1]}}
        for one in events(STEP)
    ]  # fmt: skip
    own: dict[str, Any] = {
        "ph": "X", "cat": "collective", "pid": 13, "tid": 2, "ts": 4.0, "dur": 9.0,
        "name": "all_reduce #5", "args": {"phase": "forward", "module root": "Net",
        "module": "mlp", "kind": "all_reduce", "bytes": 64},
    }  # fmt: skip
    before = {**own, "ts": 0.0, "args": {**own["args"], BEGAN_BEFORE: 0.2}}
    # Other ranks were profiled for longer: so long the lanes are, too.
    span = {
        "ph": "X", "cat": "Trace", "pid": 100_301, "tid": "PyTorch Profiler", "ts": 1.5,
        "dur": 30.0, "name": "PyTorch Profiler (0)", "args": {"Op count": 0},
    }  # fmt: skip
    others = [{**own, "ts": 1.0}, {**own, "ts": 32.0}]
    strange = [{"ph": "X"}, {"name": 5}, {"ph": "M", "name": "x", "args": {}}, 7]
    ranks = {"3": {"host": "node0", "modules": model, **about}}
    every = [*strange, *others, *torchs, span, before, own]
    return {"traceEvents": every, "otherData": {"ranks": ranks}}


def written(folder: Path, document: Any, name: str = "p.json.gz") -> Path:
    path = folder / name
    data = json.dumps(document).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def test_a_profile_is_a_tree_at_each_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path, profile()))
    command = ["statistics", "--by", "module", path, "--level"]
    assert main([*command, "0"]) == 0
    level_0 = capsys.readouterr().out
    assert re.search(r"^  mlp +1 +64 B +≤ 9.00 µs .* all_reduce 1$", level_0, re.MULTILINE)
    assert re.search(r"^sum +1 +64 B ", level_0, re.MULTILINE)
    assert "weight" not in level_0
    assert main([*command, "1"]) == 0
    level_1 = capsys.readouterr().out
    assert "forward: all_reduce 1 (64 B, ≤ 9.00 µs)" in level_1
    assert "      torch.nn.Linear" in level_1
    assert "weight float32[8,4], (Shard(dim=0),) on tp=2, here [4,4]" in level_1
    assert "forward: on DTensors: aten::addmm 1 (17.0 µs)" in level_1
    assert "aten::relu" not in level_1
    assert main([*command, "3"]) == 0
    assert "aten::t 1" in capsys.readouterr().out


def test_the_json_has_the_fields_of_comm_debug_modes_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path, profile(), "p.json"))
    assert main(["statistics", "--by", "module", "--json", "--level", "2", path]) == 0
    found = read_document(capsys.readouterr().out, "frtop-modules-1")
    assert (found["level"], found["ranks"], found["recorded"]) == (2, [3], True)
    net, nowhere = found["children"]
    assert (net["fqn"], net["module_type"]) == ("Net", "train.Net")
    (again, mlp) = net["children"]
    assert again["operations_checkpointing"][0]["name"] == "aten::relu (recomputed forward)"
    assert mlp["parameters"] == [["weight", "(Shard(dim=0),)"]]
    assert mlp["tensors"] == [
        {"name": "weight", "dtype": "float32", "shape": [8, 4],
         "placements": "(Shard(dim=0),)", "mesh": "tp=2", "local_shape": [4, 4]}
    ]  # fmt: skip
    assert mlp["collectives_forward"] == [["all_reduce", 1]]
    assert mlp["own"] == [
        {"phase": "forward", "kind": "all_reduce", "count": 1, "bytes": 64, "ns": 9000,
         "exact": False}
    ]  # fmt: skip
    assert mlp["operations_forward"][0] == {
        "name": "aten::addmm", "input_shape": ["[8,4]", "[[2]]"], "input_sharding": [],
        "device_mesh": "", "is_bw": False, "is_activation_checkpointing": False,
        "op": "aten::addmm", "phase": "forward", "count": 1, "of_dtensors": False, "ns": 5000,
    }  # fmt: skip
    nowhere_ops = [one["name"] for one in nowhere["operations_forward"]]
    assert nowhere_ops == ["aten::add_ (optimizer)", "aten::sum (outside of the model)"]


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statistics", "--by", "module", "--level", "2"]) == 2
    assert "needs a profile" in capsys.readouterr().err
    unlabelled = profile(None)
    unlabelled["traceEvents"] = [
        one
        for one in unlabelled["traceEvents"]
        if not isinstance(one, dict) or one.get("cat") != "collective"
    ]
    path = written(tmp_path, unlabelled)
    assert main(["statistics", "--by", "module", str(path)]) == 1
    assert "modules were not recorded" in capsys.readouterr().out
    assert main(["statistics", "--by", "module", str(written(tmp_path, profile(None)))]) == 0
    assert "rank 3: modules are not described" in capsys.readouterr().out
    assert main(["statistics", "--by", "module", str(written(tmp_path, profile()))]) == 0
    assert NO_DTENSORS not in capsys.readouterr().out
    old = profile()
    old["traceEvents"] = [one for one in old["traceEvents"]
                          if not isinstance(one, dict) or one.get("name") != SUBCLASS]  # fmt: skip
    assert main(["statistics", "--by", "module", str(written(tmp_path, old))]) == 0
    assert NO_DTENSORS in capsys.readouterr().out
    many = profile({**MODEL, "left_out": 1200})
    assert main(["statistics", "--by", "module", str(written(tmp_path, many))]) == 0
    assert "1,200 modules are not described" in capsys.readouterr().out


@pytest.mark.parametrize("content", [
    b"", b"{", b"[]", b"\x1f\x8bgarbage", b'{"traceEvents": {}}', b'{"traceEvents": []}',
    b"[" * 100_000, gzip.compress(b'{"traceEvents": []}' * 9, mtime=0)[:-9],
    b'{"traceEvents": [], "otherData": {"ranks": {"x": {}}}}',
    b'{"traceEvents": [], "otherData": {"ranks": {"0": {"modules": {"modules": 3}}}}}',
])  # fmt: skip
def test_another_file_is_no_profile(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(FrtopError, match=r"x\.json is"):
        read_profile(path)


def test_a_profile_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_content, "MOST_BYTES", 1000)
    with pytest.raises(FrtopError, match="more than"):
        read_profile(written(tmp_path, profile()))
    with pytest.raises(FrtopError, match="cannot be read"):
        read_profile(tmp_path / "none.json")


def test_a_profile_is_counted_by_module_unless_something_else_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path, profile()))
    assert main(["statistics", path]) == 0
    lines = capsys.readouterr().out
    assert "\n    train.Net\n" in lines
    assert re.search(r"forward: [\d.]+ µs total, [\d.]+ µs self", lines)
    for wrong in (["--by", "line"], ["--window", "5"], ["--group", "dp"]):
        assert main(["statistics", path, *wrong]) == 2
        assert f"is a profile, which is counted by module: leave out {wrong[0]}" in (
            capsys.readouterr().err
        )
    assert main(["statistics", path, path]) == 2
    assert "is a profile, which is read alone" in capsys.readouterr().err
    document = profile()
    document["otherData"]["ranks"]["4"] = {"host": "node0", "modules": MODEL}
    assert main(["statistics", str(written(tmp_path, document))]) == 0
    assert "profile of ranks 3-4 · sum of 2 ranks · level 1" in capsys.readouterr().out


def test_a_profile_with_modules_says_which_command_counts_by_them() -> None:
    done = ProfileProgress(ProfileOptions(), (), "/tmp/p.json.gz", "written", has_modules=True)
    assert any(
        "`frtop statistics --by module /tmp/p.json.gz`" in line for line in result_lines(done)
    )
    assert not any("statistics" in line for line in result_lines(replace(done, has_modules=False)))
