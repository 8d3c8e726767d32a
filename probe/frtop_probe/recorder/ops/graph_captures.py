"""CUDA graphs that captured ops of c10d.

A replay launches the captured kernels again without the dispatcher: no hook runs, no counter
moves, and nobody sees what the ranks wait for in it. So a rank with such a graph reports it like a
transport beyond c10d: it takes blame away, and accuses nobody.

Only the two Python functions that begin and end a capture are wrapped. Nothing runs at an op or at
a replay, and nothing asks CUDA, which could end another thread's capture. A group whose numbers
advanced during a capture had ops in it, from any thread: autograd issues ops from its own.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from frtop_probe.recorder.ops.groups import RecordedGroup

GRAPHS: Final = "torch.cuda.graphs"
REPLAYS: Final = "CUDA graph replays"
"""Its name among the transports beyond c10d."""
MAX_NAME: Final = 80
_NEVER_CAPTURED: Final = frozenset({"gloo", "mpi"})
"""CPU backends: their ops are not captured."""

Numbers = dict[int, tuple[int, int]]
"""Number of the last collective and of the last message, by group."""


class GraphCaptures:
    """Compares the groups before and after each capture, until a capture had ops in it."""

    def __init__(self) -> None:
        self.sign = ""
        """Describes the first capture with ops; "" before that."""
        self._open: dict[int, Numbers] = {}
        self._active: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def active(self) -> bool:
        """Whether any thread is capturing now."""
        return bool(self._active)

    def begins(self, graph: object) -> None:
        """Handles a capture into this graph that is about to begin. Never raises."""
        with suppress(TypeError):  # no torch class refuses a weak reference
            self._active.add(graph)

    def over(self, graph: object) -> None:
        """Handles the end of a capture into this graph, with or without an error. Never raises."""
        with suppress(TypeError):
            self._active.discard(graph)

    def began(self, graph: object, groups: Iterable[RecordedGroup]) -> None:
        """Handles a capture into this graph that began."""
        if not self.sign:
            self._open[id(graph)] = {group.id: group.issued[1:] for group in groups}

    def ended(self, graph: object, groups: Iterable[RecordedGroup]) -> None:
        """Handles a capture into this graph that ended without an error."""
        before = self._open.pop(id(graph), None)
        if before is None or self.sign:
            return
        for group in groups:
            issued = group.issued[1:] != before.get(group.id, (0, 0))
            if issued and group.text.get("backend") not in _NEVER_CAPTURED:
                name = str(group.text.get("description") or group.name)[:MAX_NAME]
                self.sign = f"ops of group {name} were captured"
                self._open.clear()
                return

    def clear(self) -> None:
        """Forgets everything, in a forked child: graphs do not outlive a fork."""
        self.sign = ""
        self._open.clear()
        self._active.clear()


captures: Final = GraphCaptures()


def watch_captures(
    module: ModuleType, began: Callable[[Any], None], ended: Callable[[Any], None]
) -> None:
    """Wraps both ends of a capture in `torch.cuda.graphs`, if it has them.

    Args:
        module: that module, which every torch imports, even without CUDA.
        began: called with the graph once its capture has begun. Must not raise.
        ended: called with the graph once its capture has ended well. Must not raise.
    """
    graph = getattr(module, "CUDAGraph", None)
    ends = (("capture_begin", _begin, began), ("capture_end", _end, ended))
    if not isinstance(graph, type) or not all(callable(getattr(graph, n, None)) for n, *_ in ends):
        return
    for name, follow, listener in ends:
        original = getattr(graph, name)
        if not getattr(original, "__frtop__", False):
            followed = functools.wraps(original)(follow(original, listener))
            followed.__frtop__ = True  # type: ignore[attr-defined]
            setattr(graph, name, followed)


def _begin(original: Callable[..., Any], began: Callable[[Any], None]) -> Callable[..., Any]:
    def begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
        captures.begins(graph)
        try:
            result = original(graph, *args, **kwargs)
        except BaseException:
            captures.over(graph)
            raise
        began(graph)
        return result

    return begin


def _end(original: Callable[..., Any], ended: Callable[[Any], None]) -> Callable[..., Any]:
    def end(graph: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(graph, *args, **kwargs)
        finally:
            captures.over(graph)
        ended(graph)
        return result

    return end
