"""Wraps ends of backwards and loss-scale updates, to sample numbers.

The first watch wraps them until the process ends. After that, a backward or an update costs one
more call, which checks for a watch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.features.tensor_checks.in_rank.watch import NumberWatch
from frtop_probe.recorder.guard import guarded
from frtop_probe.recorder.marks.phases import Hook, wrap_backward
from frtop_probe.recorder.ops.kernel import hide_from_dynamo
from frtop_probe.recorder.process.import_hook import when_imported

SCALERS: Final = {
    "torch.amp.grad_scaler": "GradScaler",
    "torch.distributed.fsdp.sharded_grad_scaler": "ShardedGradScaler",
}
"""Torch's classes that define `update`; the program's classes call their base's. Torch keeps no
list of their objects."""


class _Current:
    """The watch of this process, and whether its recorder runs: a forked child has its own."""

    def __init__(self) -> None:
        self.watch: NumberWatch | None = None
        self.alive = [0]
        self.wrapped = False


CURRENT: Final = _Current()


def install(torch: Any, watch: NumberWatch, alive: list[int]) -> None:
    """Wraps everything once, and makes it serve this watch while `alive[0]` is not 0."""
    CURRENT.watch, CURRENT.alive = watch, alive
    if CURRENT.wrapped:
        return
    CURRENT.wrapped = True
    begins = _guard(lambda: None)
    # All functions that `_guard` makes share one code object, and call only ours.
    hide_from_dynamo(torch, begins)
    wrap_backward(torch, begins, _guard(lambda _: _watch().backward_ended()))
    update_begins = _guard(lambda scaler: _watch().update_begins(scaler))
    update_ended = _guard(lambda scaler: _watch().update_ended(scaler))
    for module, name in SCALERS.items():
        wrap = functools.partial(_wrap, torch, name, update_begins, update_ended)
        when_imported(module, guarded(wrap, lambda: True, _failed))


def _guard(function: Callable[..., Any]) -> Callable[..., Any]:
    return guarded(function, _is_watching, _failed)


def _is_watching() -> bool:
    watch = CURRENT.watch
    return watch is not None and bool(CURRENT.alive[0]) and bool(watch.watching)


def _watch() -> NumberWatch:
    assert CURRENT.watch is not None
    return CURRENT.watch


def _failed(error: BaseException) -> None:
    if CURRENT.watch is not None:
        CURRENT.watch.failed(error)


def _wrap(torch: Any, name: str, begins: Hook, ends: Hook, module: Any) -> None:
    kind = getattr(module, name, None)
    original = getattr(kind, "__dict__", {}).get("update")
    if original is None:
        return

    @functools.wraps(original)
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        begins(self)
        result = original(self, *args, **kwargs)
        ends(self)
        return result

    hide_from_dynamo(torch, update, callees=False)
    kind.update = update  # type: ignore[union-attr]
