"""Ops by module: summed by rank, over ranks, and as a tree."""

from __future__ import annotations

import json

from msgspec.structs import replace

from connect.fakes import frame_of
from frtop_probe import wire
from frtop_probe.statistics import calls
from frtop_probe.statistics.calls import OpClass, OpFields, RankCalls, SiteTable
from frtop_tui.job.issuer_words import brief_issuer, issuer_text
from frtop_tui.job.statistics import JobStatistics, ModuleRow
from frtop_tui.statistics.answers import RankAnswer
from frtop_tui.statistics.module_tree import (
    NO_MODULE,
    add_modules,
    module_rows,
    module_tree,
    phases_of,
)
from frtop_tui.text.incident import incident_of
from frtop_tui.text.markdown import markdown
from frtop_tui.text.module_words import module_document, tree_lines
from json_schemas import read_document

MLP = wire.Issuer("forward", "layers.10.mlp", "Net")
BACK = wire.Issuer("backward", "layers.2.mlp", "Net")
BUCKET = wire.Issuer("backward", "", "Net", "DDP bucket 0: a ... b (2 parameters)", ("a", "b"))
NOTHING = wire.Issuer("outside")
ROWS = (
    ModuleRow(MLP, "all_reduce", (0, 1), 4, 4000),
    ModuleRow(BACK, "all_reduce", (0,), 3, 300),
    ModuleRow(BACK, "all_gather", (1,), 1, 10),
    ModuleRow(BUCKET, "all_reduce", (0, 1), 2, 20),
    ModuleRow(NOTHING, "broadcast", (0,), 1, 8),
)


def test_a_tree_sums_up_what_is_below_and_keeps_the_order_of_layers() -> None:
    top = module_tree(ROWS)
    net, others = top.sorted_children()
    assert [(node.name, node.depth) for node in net.walk()] == [
        ("Net", 0), ("layers", 1), ("2", 2), ("mlp", 3), ("10", 2), ("mlp", 3),
        ("DDP bucket 0: a ... b (2 parameters)", 1),
    ]  # fmt: skip
    assert {key: one.count for key, one in net.total.items()} == {
        ("forward", "all_reduce"): 4, ("backward", "all_reduce"): 5,
        ("backward", "all_gather"): 1,
    }  # fmt: skip
    assert not net.own
    assert (net.count("backward"), net.size(), net.ranks) == (6, 4330, [0, 1])
    assert net.kinds() == [("all_reduce", 9), ("all_gather", 1)]
    assert others.name == NO_MODULE
    assert others.own["outside", "broadcast"].count == 1
    assert (top.path, top.size(), top.count("outside")) == ("", 4338, 1)
    assert phases_of(top) == ["forward", "backward", "outside"]
    assert [node.name for node in net.walk(frozenset({"Net.layers"}))][:2] == ["Net", "layers"]


def test_times_are_those_of_a_module_and_with_all_below() -> None:
    row = ModuleRow(MLP, "all_reduce", (0,), 1, 8, ns=5, exact=False)
    times = {("Net", "", "forward"): 1, ("Net", "layers.10.mlp", "forward"): 20}
    top = module_tree([row, ModuleRow(BACK, "all_reduce", (0,), 1, 8, ns=7)], (), times)
    (net,) = top.sorted_children()
    assert (net.self_ns["forward"], net.total_ns["forward"], top.took()) == (1, 21, (12, False))
    assert tree_lines(top)[:2] == [
        "           forward  backward  bytes  collective time  host time     self  kinds",
        "sum              1         1   16 B        ≤ 12.0 ns    21.0 ns        -  all_reduce 2",
    ]


def test_a_path_of_any_length_has_a_bounded_depth() -> None:
    top = module_tree([ModuleRow(wire.Issuer("forward", "a." * 300, "N"), "x", (0,), 1, 1)])
    assert max(node.depth for node in top.walk()) <= 32


def test_the_document_has_the_fields_of_comm_debug_modes_dump() -> None:
    """It has two phases: others are named beside the kind."""
    again = ModuleRow(wire.Issuer("recompute", "layers.2.mlp", "Net"), "all_reduce", (0,), 1, 8)
    found = JobStatistics(0, 10**9, 0, (0, 1), modules=(*ROWS, again))
    document = read_document(json.dumps(module_document(found)), "frtop-modules-1")
    assert (document["fqn"], document["ranks"]) == ("Global", [0, 1])
    assert document["collectives_forward"] == [
        ["all_reduce", 4],
        ["broadcast (outside of the model)", 1],
    ]
    net = document["children"][0]
    assert net["fqn"] == "Net"
    assert net["collectives_forward"] == [["all_reduce", 4]]
    assert net["collectives_backward"] == [
        ["all_gather", 1], ["all_reduce", 5], ["all_reduce (recomputed forward)", 1],
    ]  # fmt: skip
    assert net["children"][0]["fqn"] == "Net.layers"
    assert net["total"][-1] == {
        "phase": "recompute", "kind": "all_reduce", "count": 1, "bytes": 8
    }  # fmt: skip


def test_a_report_has_the_tree_if_modules_are_recorded() -> None:
    frame = frame_of()
    found = replace(frame, statistics=JobStatistics(0, 10**9, 0, (0, 1), modules=ROWS))
    assert "| Net.layers.10.mlp | 4 | 0 | 0 | 4.00 KB |" in markdown(incident_of(found, "0.1"))
    assert "Collectives by module" not in markdown(incident_of(frame, "0.1"))


def test_sums_of_ranks_and_slices_are_bounded_and_ignore_impossible_rows() -> None:
    answer = RankAnswer(
        3, "node0", 0, {},
        wire.RankStatistics(1, 0, modules=(
            wire.ModuleStatistics(1, "all_reduce", 4, 40),
            wire.ModuleStatistics(2, "all_reduce", 1, 10),
            wire.ModuleStatistics(0, "all_reduce", 1, 10),
        )),
        (), (MLP,),
    )  # fmt: skip
    one, other = {}, {}  # type: ignore[var-annotated]
    add_modules(one, answer)
    add_modules(other, answer._replace(rank=5))
    assert module_rows([one, other]) == (ModuleRow(MLP, "all_reduce", (3, 5), 8, 80),)


def test_a_rank_counts_by_module_beside_its_lines(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(calls, "MAX_MODULES", 1)
    sites, table = SiteTable(), RankCalls()
    classes = [
        OpClass(1, 1, collective=True, size=8, module=sites.module(issuer, "all_reduce"))
        for issuer in (MLP, BACK, None)
    ]
    ops = [classes[0], classes[1], classes[0], classes[2]]
    table.count(OpFields(ops, (1, 2, 3, 4), (1, 2, 3, 4), (1, 1, 1, 1), (0,) * 4, (0,) * 4))
    assert table.modules() == (wire.ModuleStatistics(1, "all_reduce", 2, 16),)
    assert table.modules_left_out == 1
    assert tuple(sites.issuers) == (MLP, BACK)


def test_an_issuer_in_words() -> None:
    assert issuer_text(BACK) == "backward of layers.2.mlp"
    assert issuer_text(BUCKET) == "backward, DDP bucket 0: a ... b (2 parameters)"
    assert brief_issuer(BUCKET) == "backward, DDP bucket 0: a ... b"
    assert issuer_text(wire.Issuer("recompute", "", "Net")) == "recomputed forward of Net"
    graph = wire.Issuer("forward", "layers.1", "Net", "graph eval_with_key.3")
    assert issuer_text(graph) == "forward of layers.1, graph eval_with_key.3"
    second = wire.Issuer("backward", "layers.1", "Net #2")
    assert issuer_text(second) == "backward of layers.1 of Net #2"
    bucket = wire.Issuer("backward", "", "Net #2", "DDP bucket 0: a ... b (2 parameters)")
    assert brief_issuer(bucket) == "backward of Net #2, DDP bucket 0: a ... b"
    assert issuer_text(wire.Issuer("optimizer")) == "optimizer"
    assert issuer_text(NOTHING) == issuer_text(None) == ""
