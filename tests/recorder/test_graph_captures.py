"""Captures of CUDA graphs, told by what a rank issues while one goes on."""

from __future__ import annotations

import types
from typing import Any

import pytest

from frtop_probe.recorder.ops.graph_captures import GraphCaptures, captures, watch_captures
from frtop_probe.recorder.ops.groups import RecordedGroup


def group(number: int, backend: str = "nccl", description: str = "") -> RecordedGroup:
    made = RecordedGroup(number, f"name {number}", None, exact=True)
    made.text = {"backend": backend, "description": description}
    return made


def module_with(graph: object) -> types.ModuleType:
    module = types.ModuleType("graphs")
    module.CUDAGraph = graph  # type: ignore[attr-defined]
    return module


class Graph:
    """As torch's, which needs a device."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def capture_begin(self, pool: object = None, *, capture_error_mode: str = "global") -> None:
        self.calls.append((pool, capture_error_mode))

    def capture_end(self) -> str:
        if self.calls == ["broken"]:
            raise RuntimeError("operation not permitted when stream is capturing")
        return "ended"


def test_only_ops_that_a_device_captures_count() -> None:
    groups = [group(1, "gloo"), group(2, "cpu:gloo,cuda:nccl", "tp:0")]
    captures, graph = GraphCaptures(), object()
    groups[1].number = 7
    captures.began(graph, groups)
    groups[0].number += 1  # a barrier of the host, beside it
    captures.ended(graph, groups)
    assert captures.sign == ""
    groups[1].number += 1  # not in a capture
    captures.began(graph, groups)
    captures.ended(graph, groups)
    captures.ended(graph, groups)
    assert captures.sign == ""
    captures.began(graph, groups)
    groups[1].p2p += 1
    captures.ended(graph, groups)
    assert captures.sign == "ops of group tp:0 were captured"
    captures.clear()
    captures.began(graph, groups)
    captures.ended(graph, [*groups, group(3)])
    assert captures.sign == ""


def test_the_sign_does_not_change_any_more() -> None:
    """Engines capture dozens of graphs: each change would be one more entry in the side table."""
    captures = GraphCaptures()
    for number in (1, 2, 3):
        captures.began(number, [])
        made = group(number)
        made.number = 1
        captures.ended(number, [made])
    assert captures.sign == "ops of group name 1 were captured"
    assert captures._open == {}


def test_a_capture_is_passed_on_as_it_is() -> None:
    class Wrapped(Graph):
        pass

    seen: list[tuple[str, object]] = []
    began = lambda graph: seen.append(("began", graph))  # noqa: E731
    ended = lambda graph: seen.append(("ended", graph))  # noqa: E731
    for _ in range(2):  # wrapped once
        watch_captures(module_with(Wrapped), began, ended)
    graph = Wrapped()
    graph.capture_begin("pool", capture_error_mode="relaxed")
    assert graph.capture_end() == "ended"
    assert graph.calls == [("pool", "relaxed")]
    assert seen == [("began", graph), ("ended", graph)]
    graph.calls = ["broken"]
    with pytest.raises(RuntimeError, match="not permitted"):
        graph.capture_end()
    assert len(seen) == 2


def test_a_capture_is_active_from_its_begin_to_its_end_however_it_ends() -> None:
    class Followed(Graph):
        def capture_begin(self, *args: object, **kwargs: Any) -> None:
            active.append(captures.active)
            if args == ("refused",):
                raise RuntimeError("a capture is under way")

    active: list[bool] = []
    watch_captures(module_with(Followed), lambda _: None, lambda _: None)
    graph = Followed()
    graph.capture_begin()
    assert (active, captures.active) == ([True], True)
    graph.capture_end()
    assert not captures.active
    with pytest.raises(RuntimeError):
        graph.capture_begin("refused")
    assert not captures.active
    graph.capture_begin()
    graph.calls = ["broken"]
    with pytest.raises(RuntimeError):
        graph.capture_end()
    assert not captures.active
    graph.capture_begin()
    del graph
    assert not captures.active  # the program dropped it meanwhile


@pytest.mark.parametrize("graph", [None, object(), type("Other", (), {"capture_begin": print})])
def test_a_torch_without_these_methods_is_left_alone(graph: object) -> None:
    before = dict(vars(graph)) if isinstance(graph, type) else None
    watch_captures(module_with(graph), print, print)
    watch_captures(types.ModuleType("empty"), print, print)
    assert before is None or dict(vars(graph)) == before
