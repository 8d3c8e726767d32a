"""Messages of pipeline stages: which stage sends or receives, activations or gradients.

A schedule of `torch.distributed.pipelining` issues them between the forwards and backwards of its
stages, where no module runs. But one of a stage's four methods makes each message just before the
schedule issues it. So we remember what they return, and find the message by its tensor.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from frtop_probe.recorder.ops.kernel import hide_from_dynamo
from frtop_probe.ring.layout import IssuePhase

STAGES: Final = "torch.distributed.pipelining.stage"
MAX_MESSAGES: Final = 4096
"""Most messages waiting to be issued: a schedule that drops messages must not fill memory."""
_METHODS: Final = {
    "get_fwd_recv_ops": (IssuePhase.FORWARD, "activations"),
    "get_fwd_send_ops": (IssuePhase.FORWARD, "activations"),
    "get_bwd_recv_ops": (IssuePhase.BACKWARD, "gradients"),
    "get_bwd_send_ops": (IssuePhase.BACKWARD, "gradients"),
}
Made = Callable[[Any, Any, IssuePhase, str], Any]
"""Takes a stage, the messages that it made, the phase, and what they carry."""


class PipelineMessages:
    """By `id` of a tensor: the number for the slot of the message that carries it."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[weakref.ref[Any], int]] = {}

    def add(self, messages: Sequence[Any], number: int) -> None:
        """Adds messages that the schedule will issue next."""
        if len(self.known) + len(messages) > MAX_MESSAGES:
            self.known.clear()
        for one in messages:
            tensor = one.tensor
            self.known[id(tensor)] = weakref.ref(tensor), number

    def take(self, args: Sequence[Any]) -> int:
        """Takes the number of the message that an op carries; 0 if it carries none."""
        tensors = args[0] if args else None
        if not isinstance(tensors, list) or len(tensors) != 1:
            return 0
        known = self.known.pop(id(tensors[0]), None)
        return known[1] if known is not None and known[0]() is tensors[0] else 0


def wrap_stages(torch: Any, module: Any, made: Made) -> None:
    """Wraps the methods of stages that make messages, as far as this torch has them."""
    kind = getattr(module, "_PipelineStageBase", None)
    for name, (phase, what) in _METHODS.items():
        original = getattr(kind, "__dict__", {}).get(name)
        if original is not None:
            wrapper = _wrapper(original, made, phase, what)
            hide_from_dynamo(torch, wrapper, callees=False)
            setattr(kind, name, wrapper)


def _wrapper(
    original: Callable[..., Any], made: Made, phase: IssuePhase, what: str
) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        messages = original(self, *args, **kwargs)
        if messages:
            made(self, messages, phase, what)
        return messages

    return wrapper
