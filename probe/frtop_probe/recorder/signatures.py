"""What an op is: a cheap key in the hook, and once per distinct key the full text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from frtop_probe.recorder.operations import Operation, Tensors

Key = tuple[Any, ...]
Glance = Callable[[Sequence[Any]], tuple[Key, bool]]
"""From an op's arguments: a hashable key of all that its signature depends on apart from
the group, and whether its tensors are on the CPU."""

MAX_EXPLICIT: Final = 1024
"""Even splits of an all_to_all are spelled out for groups up to this size."""


class Phantom(Exception):
    """The tensors are fake or on the meta device: nothing is communicated."""


def glance(operation: Operation) -> Glance:
    """The cheapest function that serves this op; ten of these run per millisecond."""
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


def _of_tensors(operation: Operation) -> Glance:
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


def _one(position: int, general: Glance) -> Glance:
    """For lists that mostly hold one tensor: all_reduce, broadcast, send, ..."""

    def one(args: Sequence[Any]) -> tuple[Key, bool]:
        listed = args[position]
        if len(listed) != 1:
            return general(args)
        tensor = listed[0]
        if tensor.is_cpu:
            return (tensor.dtype, tensor.shape), True
        if tensor.is_meta:
            raise Phantom
        return (tensor.dtype, tensor.shape, False), False

    return one


def _pair(first: int, second: int) -> Glance:
    """For an output and an input: all_gather_into_tensor, all_to_all_single, ..."""

    def pair(args: Sequence[Any]) -> tuple[Key, bool]:
        a, b = args[first], args[second]
        if a.is_cpu:
            return (a.dtype, a.shape, b.dtype, b.shape), True
        if a.is_meta:
            raise Phantom
        return (a.dtype, a.shape, b.dtype, b.shape, False), False

    return pair


def _general(tensors: tuple[Tensors, ...]) -> Glance:
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
                        raise Phantom
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
    """The tensors of an argument, in order."""
    if depth == 0:
        yield value
    elif depth == 1:
        yield from value
    else:
        for inner in value:
            yield from inner


def describe(operation: Operation, args: Sequence[Any], ranks: Sequence[int]) -> dict[str, Any]:
    """The signature as it goes into the side table.

    Args:
        operation: which op.
        args: its arguments, possibly without trailing defaults.
        ranks: global ranks of the group by group rank.

    Returns:
        The fields of a signature that apply and are known. Roots and peers are global
        ranks. Tensors come as `[dtype, shape, count, device]`.
    """
    signature: dict[str, Any] = {"kind": operation.kind}
    inputs: list[Any] = []
    outputs: list[Any] = []
    if not operation.barrier:
        for argument in operation.tensors:
            specs = _specs(flat(args[argument.position], argument.depth))
            (outputs if argument.output else inputs).extend(specs)
    # Empty lists are the other side of a gather or scatter: not known here, not zero.
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
    """Splits as lengths along the first dimension: eager calls leave even ones empty."""
    if given:
        return [int(length) for length in given]
    if not 0 < world <= MAX_EXPLICIT or not shape or shape[0] % world:
        return None
    return [shape[0] // world] * world
