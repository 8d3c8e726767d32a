"""The wait-for graph as a tree of lines."""

from __future__ import annotations

import time

from frtop_tui.diagnosis.model import Edge, NodeTrace, Trace
from frtop_tui.text.wait_boxes import wait_boxes
from frtop_tui.text.wait_tree import MOST_CHILDREN, TreeRow, tree_rows


def rows(*nodes: NodeTrace, more: int = 0) -> list[TreeRow]:
    return tree_rows(wait_boxes(Trace(graph=nodes, more_nodes=more), 4096))


def drawn(found: list[TreeRow]) -> list[str]:
    return [
        f"{row.lead}{row.box.title if row.box and row.box.kind == 'waits' else row.kind}"
        for row in found
    ]


def test_the_rank_that_all_wait_for_is_on_top_and_a_wait_is_drawn_once() -> None:
    """The second op waits for rank 5 as well, but it does so through the first one, too."""
    first = NodeTrace("gather", "4", overdue=True, free="5")
    second = NodeTrace("reduce", "0-3", overdue=True, free="5", edges=(Edge("4", "gather", 0),))
    assert drawn(rows(first, second)) == ["box", "└ gather", "  └ reduce"]


def test_only_an_overdue_wait_has_a_root_cause() -> None:
    """Each op of a healthy or slow job waits for somebody for a moment."""
    nodes = (NodeTrace("gather", "4", overdue=False, free="5"),
             NodeTrace("reduce", "0-3", overdue=True, free="6"))  # fmt: skip
    found = {row.box.ranks: row.box.title for row in rows(*nodes) if row.box is not None}
    assert found["5"] == "in no op at this moment; nobody waits unusually long"
    assert found["6"] == "root cause: it waits for no rank"
    assert next(iter(found)) == "6"


def test_ops_of_groups_with_one_name_are_told_apart() -> None:
    """Groups of a device mesh all are called mesh_tp: the trace says which op is meant."""
    nodes = (
        NodeTrace("gather #1 of mesh_tp", "0", overdue=True, free="1"),
        NodeTrace("gather #1 of mesh_tp", "2", overdue=True, free="3"),
        NodeTrace("reduce", "4", overdue=True, edges=(Edge("2", "gather #1 of mesh_tp", 1),)),
    )
    assert drawn(rows(*nodes)) == [
        "box", "└ gather #1 of mesh_tp", "  └ reduce", "box", "└ gather #1 of mesh_tp",
    ]  # fmt: skip


def test_a_deadlock_begins_at_one_of_its_ops_and_says_where_it_closes() -> None:
    found = rows(
        NodeTrace("a", "0", overdue=True, edges=(Edge("1", "b", 1),)),
        NodeTrace("b", "1", overdue=True, edges=(Edge("0", "a", 0),)),
    )
    assert [row.kind for row in found] == ["box", "box", "closes"]


def test_an_op_that_all_have_entered_is_a_root_of_its_own() -> None:
    (row,) = rows(NodeTrace("reduce", "0-7", overdue=True))
    assert (row.kind, row.count, row.folded) == ("box", 8, None)


def test_many_that_wait_for_one_are_folded_and_alike_ones_share_a_line() -> None:
    chains = []
    for n in range(12):
        chains.append(NodeTrace(f"first {n}", str(n), overdue=True, free="99"))
        below = NodeTrace(
            f"second {n}", str(100 + n), overdue=True, edges=(Edge(str(n), f"first {n}", 2 * n),)
        )
        chains.append(below)
    alike = [NodeTrace(f"other {n}", str(200 + n), overdue=True, free="99") for n in range(5)]
    graph = wait_boxes(Trace(graph=(*chains, *alike)), 4096)
    found = tree_rows(graph)
    (more,) = [row for row in found if row.kind == "more"]
    assert more.count == 12 + 1 - MOST_CHILDREN
    unfolded = tree_rows(graph, {more.key})
    assert not any(row.kind == "more" for row in unfolded)
    (shared,) = [row for row in unfolded if row.box is not None and row.box.alike]
    assert shared.count == 5
    last = tree_rows(graph, {more.key, shared.key})
    assert sum(row.kind == "alike" for row in last) == 5


def test_what_was_left_out_is_counted() -> None:
    found = rows(NodeTrace("reduce", "0", overdue=True, free="1"), more=7)
    assert (found[-1].kind, found[-1].count) == ("left out", 7)


def test_sixteen_thousand_ranks_in_two_thousand_ops_are_few_lines() -> None:
    nodes = [NodeTrace("reduce of dp", "0-2046", overdue=True, free="16383")]
    nodes += [
        NodeTrace(f"gather of tp {n}", f"{8 * n}-{8 * n + 6}", overdue=True,
                  edges=(Edge(str(n), "reduce of dp", 0),))
        for n in range(2047)
    ]  # fmt: skip
    begin = time.process_time()
    found = rows(*nodes)
    assert drawn(found) == ["box", "└ reduce of dp", "  └ 2047 alike: gather of tp 0"]
    assert time.process_time() - begin < 2  # some 20 ms; squares of these would take minutes


def test_a_pipeline_as_deep_as_it_has_ranks_needs_no_recursion() -> None:
    nodes = [NodeTrace("recv 0", "1", overdue=True, free="0")]
    nodes += [
        NodeTrace(f"recv {n}", str(n + 1), overdue=True, edges=(Edge(str(n), "", n - 1),))
        for n in range(1, 2000)
    ]
    assert len(rows(*nodes)) == 2001
