"""`--explain`: every stage says what it found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from diagnosis.scenes import Scene, one_sleeps
from diagnosis.unprepared import Unprepared
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.histories import with_trace
from frtop_tui.diagnosis.model import Trace
from frtop_tui.text.explain import explain_lines
from frtop_tui.text.json_document import document
from frtop_tui.text.plain import text
from frtop_tui.text.wait_boxes import wait_boxes
from frtop_tui.text.wait_tree import tree_rows


def explained(scene: Scene, seconds: float = 4.0) -> Trace:
    scene.engine = Engine(explain=True)
    trace = scene.settle(seconds).trace
    assert trace is not None
    return trace


def test_it_lists_blocked_ranks_with_the_sign_that_shows_it_and_where_the_blame_ends() -> None:
    trace = explained(one_sleeps())
    (blocked,) = trace.blocked
    assert (blocked.ranks, blocked.op) == ("0-1,3", "all_reduce #8 of default_pg")
    assert blocked.sign == "issued synchronously, and its thread has issued nothing since"
    assert blocked.seconds == pytest.approx(14, abs=1)
    (node,) = trace.graph
    assert (node.waiting, node.free, node.overdue, node.edges) == ("0-1,3", "2", True, ())
    lines = explain_lines(trace)
    text = "\n".join(lines)
    assert "ranks 0-1,3 in all_reduce #8 of default_pg for 14s: issued synchronously" in text
    assert "rank 2: root cause: it waits for no rank" in text
    assert "not_entered rank 2 (cause sleeping, progress none): confirmed" in text
    assert [line[2] for line in lines if line[2:3].isdigit()] == ["1", "2", "3"]


def test_the_graph_shows_where_the_blame_goes_on() -> None:
    scene = Scene(4)
    scene.group("tp", [1, 2])
    scene.waits([0, 3], "all_reduce", for_s=10)
    scene.waits([1], "barrier", group="tp", for_s=10)
    scene.sleeps(2)
    nodes = {node.waiting: node for node in explained(scene).graph}
    (edge,) = nodes["0,3"].edges
    assert (edge.ranks, edge.op.split()[0]) == ("1", "barrier")
    assert nodes["1"].free == "2"


@pytest.mark.parametrize("odd", [0, 2])
def test_the_rank_that_called_something_else_is_what_the_others_wait_for(odd: int) -> None:
    scene = Scene(4)
    rest = [rank for rank in range(4) if rank != odd]
    scene.waits([odd], "barrier", for_s=10)
    scene.waits(rest, "all_reduce", for_s=10)
    trace = explained(scene)
    (node,) = trace.graph
    (edge,) = node.differ
    assert (edge.ranks, edge.op) == (str(odd), "barrier at train.py:20")
    assert node.op.split()[0] == "all_reduce"
    called = {one.ranks: one.op.split()[0] for one in trace.blocked}
    assert called == {str(odd): "barrier", fold(rest): "all_reduce"}
    root, waiter = tree_rows(wait_boxes(trace, 8))
    assert root.box is not None
    assert waiter.box is not None
    assert (root.box.title, root.box.ranks) == ("called barrier at train.py:20 instead", str(odd))
    assert (waiter.box.ranks, waiter.count) == (fold(rest), 3)
    assert f"rank {odd}: called barrier at train.py:20 instead" in "\n".join(explain_lines(trace))


@pytest.mark.parametrize(("seconds", "reason"), [
    (0.0, "not confirmed: no two snapshots of its culprits, 2 s apart, yet"),
    (4.0, "confirmed: two snapshots of its culprits, 2 s apart, agree"),
])  # fmt: skip
def test_it_says_why_a_finding_is_confirmed_or_not(seconds: float, reason: str) -> None:
    (finding,) = explained(one_sleeps(), seconds).findings
    assert (finding.kind, finding.culprits, finding.cause) == ("not_entered", "2", "sleeping")
    assert finding.confirmation == reason
    assert finding.explains == ("all_reduce #8 of default_pg",)


def test_a_finding_says_whom_it_leaves_out_and_by_which_rule() -> None:
    scene = Scene(5)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.sleeps(2)
    for step in range(12):
        scene.kernel(4, "R", cpu_ns=step * 400_000_000)
        scene.pass_time(0.5)
        scene.engine = scene.engine if step else Engine(explain=True)
        trace = scene.judge().frame.trace
    assert trace is not None
    (finding,) = trace.findings
    assert [(one.ranks, one.rule) for one in finding.left_out] == [
        ("4", "absent too, but it makes progress")
    ]


def test_an_op_that_only_a_stack_shows_is_not_said_to_be_issued() -> None:
    scene = Unprepared(4)
    scene.in_call(1, "recv", (("src", "0"), ("group", '"default_pg"')))
    scene.waits([2], "all_reduce", for_s=5, sync=False)
    scene.in_call(2, "all_reduce")
    for rank in (0, 3):
        scene.sleeps(rank)
    assert {one.ranks: one.sign for one in explained(scene, 40).blocked} == dict.fromkeys(
        "12", "its stack is inside the call"
    )


def test_a_wait_that_was_there_at_the_first_look_has_lasted_at_least_so_long() -> None:
    scene = Unprepared(3)
    scene.waits([0, 1], "all_reduce", for_s=5, sync=False)
    for rank in (0, 1):
        scene.in_call(rank, "all_reduce")
        actor = scene.actors[rank]
        actor.pending = [replace(op, dated=False) for op in actor.pending]
    scene.sleeps(2)
    assert any("default_pg for at least 1" in line for line in explain_lines(explained(scene, 8)))


def test_a_rank_without_a_stack_is_not_said_to_be_on_its_way() -> None:
    scene = Unprepared(4)
    scene.waits([0, 1], "all_reduce", for_s=40, sync=False)
    for rank in (0, 1):
        scene.in_call(rank, "all_reduce")
    scene.sleeps(2)
    scene.actors[3].dump_error = "deadline"
    (finding,) = explained(scene, 8).findings
    assert [(one.ranks, one.rule) for one in finding.left_out] == [
        ("3", "absent too, but no stack shows yet what it is doing")
    ]


def test_a_deadlock_explains_the_waits_in_it() -> None:
    scene = Scene(4)
    scene.group("a", [0, 1])
    scene.group("b", [0, 1])
    scene.waits([0], "all_reduce", group="a", for_s=10)
    scene.waits([1], "all_reduce", group="b", for_s=10)
    (finding,) = explained(scene).findings
    assert finding.kind == "deadlock"
    assert len(finding.explains) == 2
    assert finding.confirmation == "confirmed: seen twice, 2 s apart"


def test_a_transport_that_is_stuck_explains_the_wait() -> None:
    scene = Scene(2)
    scene.waits([0, 1], "all_reduce", for_s=40)
    (finding,) = explained(scene).findings
    assert (finding.kind, finding.explains) == ("stuck", ("all_reduce #8 of default_pg",))


def test_unobserved_members_explain_the_wait_for_them() -> None:
    scene = Scene(4, hosts=2)
    scene.waits([0, 1], "all_reduce", for_s=40)
    scene.deaf = {1}
    (finding,) = explained(scene, 20).findings
    assert (finding.cause, finding.explains) == ("unreachable", ("all_reduce #8 of default_pg",))


def test_a_frame_out_of_a_file_is_judged_again_and_text_and_json_end_with_the_trace() -> None:
    frame = with_trace(one_sleeps().settle())
    assert frame.trace is not None
    assert frame.trace.graph[0].free == "2"
    assert "how this was found" in text(frame)
    (blocked,) = document(frame)["trace"]["blocked"]
    assert blocked["ranks"] == "0-1,3"
    assert "trace" not in document(one_sleeps().settle())
