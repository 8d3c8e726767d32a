"""References to the tensors of an op, held beside its handle until the op is complete.

They are strong only while the handle holds the tensors anyway, so no tensor lives longer than
without the recorder. Only the arguments with tensors are held, unchanged: the hook neither looks
at them nor holds the process group.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from frtop_probe.recorder.ops.operations import Operation
from frtop_probe.recorder.ops.signatures import flat


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A weak reference to a tensor of an op. `role` is "input" or "output"."""

    role: str
    reference: weakref.ref[Any]

    def tensor(self) -> Any | None:
        """Returns the tensor, which the caller must drop soon; None if the program dropped it."""
        found = self.reference()
        # If C++ owns the Python object, a reference taken from a weak one must be registered (see
        # torch.utils.weak.TensorWeakRef).
        fix = getattr(found, "_fix_weakref", None)
        if fix is not None:
            fix()
        return found


@dataclass(frozen=True, slots=True)
class OpTensorRefs:
    """An op and its tensors, inputs first."""

    sequence: int
    tensors: tuple[TensorRef, ...]

    @classmethod
    def of(cls, sequence: int, tensors: Iterable[tuple[bool, Any]]) -> OpTensorRefs:
        """From tensors, or weak references to them, with whether each is an output."""
        refs = [
            TensorRef(
                "output" if output else "input",
                one if isinstance(one, weakref.ref) else weakref.ref(one),
            )
            for output, one in tensors
        ]
        return cls(sequence, tuple(sorted(refs, key=lambda ref: ref.role)))


def tensor_getter(operation: Operation) -> Callable[[Sequence[Any]], Any]:
    """Returns a function that picks the arguments with tensors: one call, in C."""
    positions = [argument.position for argument in operation.tensors]
    return operator.itemgetter(*positions) if positions else lambda _: ()


def weak_refs(arguments: Any) -> Any:
    """Replaces the tensors in arguments with weak references."""
    if not isinstance(arguments, (list, tuple)):
        return arguments if arguments is None else weakref.ref(arguments)
    try:
        return list(map(weakref.ref, arguments))  # usually all are tensors
    except TypeError:
        return [weak_refs(inner) for inner in arguments]


def unpack(sequence: int, operation: Operation, picked: Any) -> OpTensorRefs:
    """Returns one by one the tensors in a result of `tensor_getter` or `weak_refs`.

    A barrier has none: its tensor is a dummy.
    """
    if operation.barrier:
        return OpTensorRefs(sequence, ())
    arguments = (picked,) if len(operation.tensors) == 1 else picked
    tensors = (
        (argument.output, one)
        for argument, given in zip(operation.tensors, arguments, strict=True)
        for one in flat(given, argument.depth)
        if one is not None
    )
    return OpTensorRefs.of(sequence, tensors)
