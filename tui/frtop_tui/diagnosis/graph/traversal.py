"""Walks over the wait-for graph: rings without a way out, and what leads to a node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from frtop_tui.diagnosis.graph.wait_node import WaitNode


def cycles(nodes: Iterable[WaitNode]) -> list[list[WaitNode]]:
    """Rings of nodes that wait for each other, with no edge that leads out of them."""
    known = dict.fromkeys(nodes)
    held = {p for p in known if p.blocked_at and not (p.free or p.ended or p.unobserved)}
    inner = {p for p in held if known.keys() >= set(p.successors)}
    done = leading_to(known.keys() - inner, known)
    found = list[list[WaitNode]]()
    for start in known:
        path: dict[WaitNode, None] = {}
        here = start
        while here not in done and here not in path:
            path[here] = None
            here = next(iter(here.blocked_at.values()))
        if here in path:
            ring = [*path]
            found.append(ring[ring.index(here) :])
        done |= path.keys()
    return found


def leading_to(endpoints: Iterable[WaitNode], nodes: Iterable[WaitNode]) -> set[WaitNode]:
    """`endpoints`, and every node from which edges lead to one of them."""
    back: dict[WaitNode, list[WaitNode]] = {}
    for node in nodes:
        for blocked_at in node.successors:
            back.setdefault(blocked_at, []).append(node)
    reached = set(endpoints)
    todo = list(reached)
    while todo:
        for before in back.get(todo.pop(), ()):
            if before not in reached:
                reached.add(before)
                todo.append(before)
    return reached


def nodes_awaiting(ranks: Iterable[int], nodes: Sequence[WaitNode]) -> list[WaitNode]:
    """Those of `nodes` that wait for one of `ranks`, directly or through others."""
    wanted = set(ranks)
    reached = leading_to([p for p in nodes if not wanted.isdisjoint(p.free)], nodes)
    return [node for node in nodes if node in reached]
