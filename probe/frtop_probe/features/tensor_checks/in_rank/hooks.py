"""Wraps what sampled numbers need to know of: ends of backwards, and updates of loss scales.

All of it is done when numbers are sampled for the first time, and stays until the process ends: one
more call each at a backward and at an update, which asks whether numbers are sampled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.features.tensor_checks.in_rank.watch import NumberWatch
from frtop_probe.recorder.marks.phases import Guard, Hook, wrap_backward
from frtop_probe.recorder.ops.hook import hide_from_dynamo
from frtop_probe.recorder.process.import_hook import when_imported

SETTING: Final = "numbers"
SCALERS: Final = {
    "torch.amp.grad_scaler": "GradScaler",
    "torch.distributed.fsdp.sharded_grad_scaler": "ShardedGradScaler",
}
"""Torch's classes with an `update` of their own. Nothing registers their objects. Classes of
programs call the `update` of their base."""


def install(
    torch: Any, watch: Callable[[], NumberWatch], guard: Guard, always_guard: Guard
) -> None:
    """Wraps all of it.

    Args:
        torch: the package.
        watch: returns that of this process: a forked child has another one.
        guard: of functions that record.
        always_guard: of functions that wrap.
    """

    def backward_ended(_: object) -> None:
        if watch().watching:
            watch().backward_ended()

    def update_begins(scaler: Any) -> None:
        if watch().watching:
            watch().update_begins(scaler)

    def update_ended(scaler: Any) -> None:
        if watch().watching:
            watch().update_ended(scaler)

    begins = guard(lambda: None)
    # All that `guard` makes have one code: what they call is ours.
    hide_from_dynamo(torch, begins)
    wrap_backward(torch, begins, guard(backward_ended))
    for module, name in SCALERS.items():
        wrap = functools.partial(_wrap, torch, name, guard(update_begins), guard(update_ended))
        when_imported(module, always_guard(wrap))


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
