"""The tensors of an op, carried beside its handle until the op is complete.

Strongly while that handle keeps them anyway, so that no tensor lives longer than it would
without us; weakly as soon as it does not. Only the arguments that hold tensors are
carried, as they came: nothing of the process group, and no look at them in the hook.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from frtop_probe.recorder.operations import Operation
from frtop_probe.recorder.signatures import flat


@dataclass(frozen=True, slots=True)
class Held:
    """One tensor of an op. `role` is "input" or "output"."""

    role: str
    reference: weakref.ref[Any]

    def tensor(self) -> Any | None:
        """The tensor, None when the program has dropped it. To be let go soon."""
        found = self.reference()
        # Where C++ owns the Python object, a reference that comes out of a weak one must
        # be told so (see torch.utils.weak.TensorWeakRef).
        fix = getattr(found, "_fix_weakref", None)
        if fix is not None:
            fix()
        return found


@dataclass(frozen=True, slots=True)
class Carried:
    """An op and its tensors, inputs first."""

    sequence: int
    operation: Operation
    tensors: tuple[Held, ...]


def carrier(operation: Operation) -> Callable[[Sequence[Any]], Any]:
    """What takes the arguments with tensors out of all arguments: one call, in C."""
    positions = [argument.position for argument in operation.tensors]
    return operator.itemgetter(*positions) if positions else lambda _: ()


def weakly(carried: Any) -> Any:
    """The same as weak references."""
    if not isinstance(carried, (list, tuple)):
        return carried if carried is None else weakref.ref(carried)
    try:
        return list(map(weakref.ref, carried))  # tensors only, mostly
    except TypeError:
        return [weakly(inner) for inner in carried]


def unpack(sequence: int, operation: Operation, carried: Any) -> Carried:
    """What `carrier` gave, or `weakly` made of that, tensor by tensor.

    A barrier has none: its tensor is a dummy.
    """
    if operation.barrier:
        return Carried(sequence, operation, ())
    arguments = (carried,) if len(operation.tensors) == 1 else carried
    held = [
        Held("output" if argument.output else "input", reference)
        for argument, given in zip(operation.tensors, arguments, strict=True)
        for reference in _references(given, argument.depth)
    ]
    return Carried(sequence, operation, tuple(sorted(held, key=lambda one: one.role)))


def _references(given: Any, depth: int) -> Iterator[weakref.ref[Any]]:
    for one in flat(given, depth):
        if one is not None:
            yield one if isinstance(one, weakref.ref) else weakref.ref(one)
