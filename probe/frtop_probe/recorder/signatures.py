"""Signatures of ops: a cheap key for each op, and the full description once per distinct key."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from frtop_probe.recorder.groups import RecordedGroup
from frtop_probe.recorder.operations import Operation, TensorArgument
from frtop_probe.recorder.writer import RingWriter
from frtop_probe.ring.layout import Side, StatusCell

Key = tuple[Any, ...]
KeyFunction = Callable[[Sequence[Any]], tuple[Key, bool]]
"""Takes an op's arguments; returns a hashable key of everything that its signature depends on
except the group, and whether its tensors are on the CPU."""

MAX_SIGNATURES: Final = 65_536
"""Most signatures that the recorder caches per op; the program may issue more."""
MAX_EXPLICIT: Final = 1024
"""Largest group for which even splits of an all_to_all are listed."""


class NothingToCommunicate(Exception):
    """The tensors are fake or on the meta device, so nothing is communicated."""


def key_function(operation: Operation) -> KeyFunction:
    """Returns the cheapest key function for this op; it may run ten times per millisecond."""
    base = _of_tensors(operation)
    extras = [
        position for position in (operation.root, operation.peer, operation.tag) if position >= 0
    ]
    splits = [p for p in (operation.in_splits, operation.out_splits) if p >= 0]
    if splits:
        inputs, outputs = splits[0], splits[-1]

        def with_splits(args: Sequence[Any]) -> tuple[Key, bool]:
            key, cpu = base(args)
            return (key, tuple(args[inputs]), tuple(args[outputs])), cpu

        return with_splits
    if extras:
        first, last = extras[0], extras[-1]

        def with_extras(args: Sequence[Any]) -> tuple[Key, bool]:
            key, cpu = base(args)
            return (key, args[first], args[last]), cpu

        return with_extras
    return base


def _of_tensors(operation: Operation) -> KeyFunction:
    tensors = operation.tensors
    if operation.barrier:
        dummy = tensors[0].position
        return lambda args: ((), args[dummy].is_cpu)
    general = _general(tensors)
    depths = [argument.depth for argument in tensors]
    if depths == [1]:
        return _one(tensors[0].position, general)
    if depths == [0, 0]:
        return _pair(tensors[0].position, tensors[1].position)
    return general


def _one(position: int, general: KeyFunction) -> KeyFunction:
    """Returns a function for lists that usually hold one tensor: all_reduce, broadcast, ..."""

    def one(args: Sequence[Any]) -> tuple[Key, bool]:
        listed = args[position]
        if len(listed) != 1:
            return general(args)
        tensor = listed[0]
        if tensor.is_cpu:
            return (tensor.dtype, tensor.shape), True
        if tensor.is_meta:
            raise NothingToCommunicate
        return (tensor.dtype, tensor.shape, False), False

    return one


def _pair(first: int, second: int) -> KeyFunction:
    """Returns a function for one output and one input: all_gather_into_tensor, ..."""

    def pair(args: Sequence[Any]) -> tuple[Key, bool]:
        a, b = args[first], args[second]
        if a.is_cpu:
            return (a.dtype, a.shape, b.dtype, b.shape), True
        if a.is_meta:
            raise NothingToCommunicate
        return (a.dtype, a.shape, b.dtype, b.shape, False), False

    return pair


def _general(tensors: tuple[TensorArgument, ...]) -> KeyFunction:
    def general(args: Sequence[Any]) -> tuple[Key, bool]:
        key: list[Any] = []
        cpu = True
        for argument in tensors:
            previous: Key | None = None
            count = 0
            for tensor in flat(args[argument.position], argument.depth):
                local = tensor.is_cpu
                if not local:
                    cpu = False
                    if tensor.is_meta:
                        raise NothingToCommunicate
                this = (tensor.dtype, tensor.shape, local)
                if this == previous:
                    count += 1
                    continue
                key += (previous, count)
                previous, count = this, 1
            key += (previous, count)
        return tuple(key), cpu

    return general


def flat(value: Any, depth: int) -> Iterator[Any]:
    """Yields the tensors of an argument, in order."""
    if depth == 0:
        yield value
    elif depth == 1:
        yield from value
    else:
        for inner in value:
            yield from inner


def describe(operation: Operation, args: Sequence[Any], ranks: Sequence[int]) -> dict[str, Any]:
    """Describes an op for the side table.

    Args:
        operation: the op.
        args: its arguments, possibly without trailing defaults.
        ranks: global ranks of the group by group rank.

    Returns:
        The known fields of the signature. Roots and peers are global ranks; tensors are
        `[dtype, shape, count, device]`.
    """
    signature: dict[str, Any] = {"kind": operation.kind}
    inputs: list[Any] = []
    outputs: list[Any] = []
    if not operation.barrier:
        for argument in operation.tensors:
            specs = _specs(flat(args[argument.position], argument.depth))
            (outputs if argument.output else inputs).extend(specs)
    # Empty lists belong to the other side of a gather or scatter: unknown here, not empty.
    if inputs:
        signature["inputs"] = inputs
    if outputs:
        signature["outputs"] = outputs
    if operation.root >= 0:
        signature["root"] = _globally(args[operation.root], ranks)
    if operation.peer >= 0:
        signature["peer"] = _globally(args[operation.peer], ranks)
    if operation.tag >= 0:
        signature["tag"] = args[operation.tag]
    for name, position, specs in (
        ("in_splits", operation.in_splits, inputs),
        ("out_splits", operation.out_splits, outputs),
    ):
        if position >= 0 and specs:
            signature[name] = _splits(args[position], specs[0][1], len(ranks))
    return {name: value for name, value in signature.items() if value is not None}


def _specs(tensors: Iterable[Any]) -> list[list[Any]]:
    folded: list[list[Any]] = []
    for tensor in tensors:
        spec = [
            str(tensor.dtype).removeprefix("torch."),
            [int(size) for size in tensor.shape],
            1,
            str(tensor.device),
        ]
        last = folded[-1] if folded else None
        if last is not None and (last[0], last[1], last[3]) == (spec[0], spec[1], spec[3]):
            last[2] += 1
        else:
            folded.append(spec)
    return folded


def _globally(rank: int, ranks: Sequence[int]) -> int | None:
    return ranks[rank] if 0 <= rank < len(ranks) else None


def _splits(given: Sequence[int], shape: Sequence[int], world: int) -> list[int] | None:
    """Returns splits as lengths along the first dimension; eager calls leave even ones empty."""
    if given:
        return [int(length) for length in given]
    if not 0 < world <= MAX_EXPLICIT or not shape or shape[0] % world:
        return None
    return [shape[0] // world] * world


class SignatureTable:
    """Numbers distinct signatures and writes each into the side table once."""

    def __init__(self, writer: RingWriter) -> None:
        self._writer = writer
        self._numbers = itertools.count(1)
        self._pseudo: dict[tuple[str, str], int] = {}

    def intern(
        self, known: dict[Key, int], key: Key, operation: Operation, args: Any, group: RecordedGroup
    ) -> int:
        """Returns the number of a signature; 0 if the side table is full.

        Two threads may number one signature twice. A lock would cost more, and a signal
        handler that raises would leave it locked.
        """
        number = self._enter(describe(operation, args, group.ranks))
        # Roots are unknown until the group's members are: describe the op again later.
        if len(known) < MAX_SIGNATURES and group.described:
            known[key] = number
        return number

    def pseudo(self, kind: str, members: str = "") -> int:
        """Returns the number of a signature with a kind and the required members, if known."""
        number = self._pseudo.get((kind, members), 0)
        if not number:
            entry = {"kind": kind, "members": members} if members else {"kind": kind}
            number = self._pseudo[kind, members] = self._enter(entry)
        return number

    def _enter(self, signature: dict[str, Any]) -> int:
        number = next(self._numbers)
        if self._writer.write_entry(Side.SIGNATURE, number, signature):
            return number
        self._writer.cells[StatusCell.SIDE_LOST] += 1
        return 0
