"""Merging stacks: equal ones share a path, small classes first, thousands are quick."""

from __future__ import annotations

import time

from frtop_probe import wire
from frtop_tui.job.stack_frames import frame_line
from frtop_tui.text.merged_stacks import StackNode, merge_frame, merge_stacks, shared_op, tree_lines
from screens import scenes


def drawn(
    roots: tuple[StackNode, ...], unfolded: tuple[StackNode, ...] = ()
) -> list[tuple[int, str, int]]:
    rows = tree_lines(roots, {node.path for node in unfolded})
    return [(row.depth, row.node.frame.function, row.hidden) for row in rows]


def stack(*functions: str) -> tuple[wire.TraceFrame, ...]:
    """A stack of installed code; `functions` are innermost last."""
    return tuple(scenes.trace_frame(name, "torch/a.py", 1) for name in reversed(functions))


def test_ranks_with_equal_stacks_share_one_path() -> None:
    (root,) = merge_stacks([(0, stack("a", "b")), (1, stack("a", "b")), (2, stack("a", "c"))])
    assert root.ranks == [0, 1, 2]
    assert [(child.frame.function, child.ranks) for child in root.children] == [
        ("c", [2]),
        ("b", [0, 1]),
    ]


def test_different_lines_of_one_function_are_different_nodes() -> None:
    one, two = scenes.trace_frame("train", "t.py", 214), scenes.trace_frame("train", "t.py", 231)
    assert [
        frame_line(root.frame) for root in merge_stacks([(0, (one,)), (1, (two,)), (2, (two,))])
    ] == [
        "t.py:214",
        "t.py:231",
    ]


def test_a_chain_folds_to_its_end_except_where_a_rank_stops_and_unfolds_in_full() -> None:
    roots = merge_stacks([(0, stack("a", "b", "c", "d"))])
    assert drawn(roots) == [(0, "a", 3), (0, "d", 0)]
    assert [name for _, name, _ in drawn(roots, roots)] == ["a", "b", "c", "d"]
    roots = merge_stacks([(0, stack("a", "b")), (1, stack("a", "b", "c", "d"))])
    assert drawn(roots) == [(0, "a", 1), (0, "b", 0), (1, "c", 1), (1, "d", 0)]
    assert roots[0].children[0].ends_here == 1


def test_the_users_own_frames_are_never_folded() -> None:
    merged = merge_frame(scenes.hung(), range(64))
    rows = drawn(merged.roots)
    assert rows[:2] == [(0, "<module>", 0), (0, "main", 0)]
    assert rows[2:5] == [(1, "train", 0), (1, "__next__", 5), (1, "wait", 0)]


def test_ranks_without_a_stack_are_listed_with_the_reason() -> None:
    frame = scenes.refused()
    merged = merge_frame(frame, [37, 0, 2, 900])
    assert merged.ranks == 1
    assert {ranks: why for why, ranks in merged.missing}[(900,)] == "never reported"
    assert any("ptrace_scope" in why and ranks == (37,) for why, ranks in merged.missing)
    dead = merge_frame(scenes.dead(), [5])
    why = "ended with exit status 1 after RuntimeError at train.py:226 (train)"
    assert dead.missing == ((why, (5,)),)


def test_stack_ages_use_the_operators_clock() -> None:
    frame = scenes.hung()
    assert round(merge_frame(frame, [0, 37]).age_s(frame.now_ns), 3) == 0.6


def test_the_op_of_a_class_is_shown_when_all_its_ranks_wait_in_it() -> None:
    frame = scenes.hung()
    merged = merge_frame(frame, range(64))
    leaves = [row.node for row in tree_lines(merged.roots, ()) if row.node.ends_here]
    assert [(leaf.ranks, shared_op(frame, leaf)) for leaf in leaves] == [
        ([37], ""),
        ([0, 1, 36, 38], "all_reduce #8812 dp:0"),
    ]


def test_deep_recursion_is_drawn() -> None:
    deep = tuple(scenes.trace_frame("visit", "tree.py", n) for n in range(3000))
    roots = merge_stacks([(0, deep), (1, deep[1:])])
    assert len(tree_lines(roots, ())) >= 3000


def test_thousands_of_ranks_merge_quickly() -> None:
    stacks = [
        (n, tuple(scenes.trace_frame(f"f{d}", "torch/a.py", d) for d in range(30)))
        for n in range(4096)
    ]
    begin = time.process_time()
    (root,) = merge_stacks(stacks)
    spent = time.process_time() - begin
    print(f"merged 4,096 stacks of 30 frames in {spent * 1e3:.0f} ms")
    assert len(root.ranks) == 4096
    assert len(tree_lines((root,), ())) == 2
