"""Writes what ops do: each form once, sizes as often as needed.

A *form* is kind, dtypes and devices. A program has few forms; each is written once, into the side
table. Shapes, splits and tags go into the ring's sizes, and are written again before others
overwrite them. So a program with constant shapes writes them once; a program with new splits at
every op pays a few microseconds for each, and no memory.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from frtop_probe.recorder.ops.operations import Operation, TensorArgument
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring import layout, sizes
from frtop_probe.ring.layout import Side, StatusCell

Key = tuple[Any, ...]
KeyFunction = Callable[[Sequence[Any]], tuple[Key, bool]]
"""Takes an op's arguments; returns a hashable key of its form and sizes, and whether its tensors
are on the CPU."""
Written = tuple[int, int, float]
"""Form id, position of the sizes (0 if none), and the highest `floor` at which new ops may still
use these sizes."""

MAX_KEYS: Final = 1024
"""Most keys kept per op."""
MAX_SPLITS: Final = 4096
"""Most splits in the keys kept per op: about 0.5 MB."""
MIN_KEYS: Final = 8
TRIED: Final = 8
"""If this many keys with splits in a row are new, the next ops go without a key."""
UNTRIED: Final = 120
"""How many ops with splits then go without a key. If splits vary at every op, a key costs more
than it saves: two numbers per rank are hashed, compared and stored."""
UNKEYED: Final = ()
"""The key of an op whose sizes are always written. It is never known."""
_TRIES: Final = 3
"""After other threads have interfered this often, an op stays without sizes."""


class NothingToCommunicate(Exception):
    """The tensors are fake or on the meta device, so nothing is communicated."""


class Splits:
    """Decides whether keys with splits are worth their cost: not if all of them are new.

    Two threads may miscount, which is harmless.
    """

    __slots__ = ("skip", "tried", "written")

    def __init__(self) -> None:
        self.skip = 0
        """How many of the next ops go without a key."""
        self.tried = 0
        self.written = 0
        """How many of the tried keys had to be written."""


def key_function(operation: Operation, varying: Splits | None = None) -> KeyFunction:
    """Returns the cheapest key function for this op; it may run ten times per millisecond.

    Args:
        operation: the op.
        varying: counts keys with splits, together with the function that writes new keys.
    """
    base = _of_tensors(operation)
    if operation.in_splits >= 0:
        return _with_splits(operation, base, varying or Splits())
    if operation.tag >= 0:
        tag = operation.tag

        def with_tag(args: Sequence[Any]) -> tuple[Key, bool]:
            key, cpu = base(args)
            return (key, args[tag]), cpu

        return with_tag
    return base


def _with_splits(operation: Operation, base: KeyFunction, varying: Splits) -> KeyFunction:
    inputs, outputs = operation.in_splits, operation.out_splits
    depths = [argument.depth for argument in operation.tensors]
    first = operation.tensors[0].position if set(depths) == {0} else -1

    def with_splits(args: Sequence[Any]) -> tuple[Key, bool]:
        if varying.skip > 0:
            varying.skip -= 1
            if first >= 0 and args[first].is_cpu:
                return UNKEYED, True
            return UNKEYED, base(args)[1]
        if varying.tried >= TRIED:
            if varying.written >= TRIED:
                varying.skip = UNTRIED
            varying.tried = varying.written = 0
        varying.tried += 1
        key, cpu = base(args)
        return (key, tuple(args[inputs]), tuple(args[outputs])), cpu

    return with_splits


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
            given, depth = args[argument.position], argument.depth
            rows = [
                (tensor.dtype, tensor.shape, tensor.is_cpu)
                for tensor in (given if depth == 1 else flat(given, depth))
            ]
            key.append(len(rows))
            if not rows:
                continue
            row = rows[0]
            local = row[2]
            if rows.count(row) == len(rows):
                key.append(row)
            else:
                for row, equal in itertools.groupby(rows):
                    key += (row, len(list(equal)))
                    local = local and row[2]
            if not local:
                cpu = False
                if any(tensor.is_meta for tensor in flat(given, depth)):
                    raise NothingToCommunicate
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


def encoder(operation: Operation) -> Callable[[Sequence[Any]], tuple[Key, list[int]]]:
    """Returns the cheapest function that is equivalent to `encode` for this op."""
    tensors, tag, splits = operation.tensors, operation.tag, operation.in_splits
    usual = operation.barrier or tag >= 0
    if not usual and splits < 0 and [one.depth for one in tensors] == [1]:
        return _one_encoder(operation)
    if not usual and sorted((one.depth, one.output) for one in tensors) == [(0, False), (0, True)]:
        return _pair_encoder(operation)
    return lambda args: encode(operation, args)


def _one_encoder(operation: Operation) -> Callable[[Sequence[Any]], tuple[Key, list[int]]]:
    (argument,) = operation.tensors
    position, output = argument.position, argument.output

    def one(args: Sequence[Any]) -> tuple[Key, list[int]]:
        listed = args[position]
        if len(listed) != 1:
            return encode(operation, args)
        tensor = listed[0]
        side, shape = ((tensor.dtype, tensor.device),), tensor.shape
        return ((), side) if output else (side, ()), [1, 0, 1, len(shape), *shape]

    return one


def _pair_encoder(operation: Operation) -> Callable[[Sequence[Any]], tuple[Key, list[int]]]:
    (given,) = (one.position for one in operation.tensors if not one.output)
    (taken,) = (one.position for one in operation.tensors if one.output)
    outgoing, incoming = operation.in_splits, operation.out_splits

    def pair(args: Sequence[Any]) -> tuple[Key, list[int]]:
        a, b = args[given], args[taken]
        shape, other = a.shape, b.shape
        kinds = ((a.dtype, a.device),), ((b.dtype, b.device),)
        integers = [1, 0, 1, len(shape), *shape, 1, 0, 1, len(other), *other]
        if outgoing >= 0:
            sent, received = args[outgoing], args[incoming]
            integers += (len(sent), *sent, len(received), *received)
        return kinds, integers

    return pair


def encode(  # noqa: C901 - one loop, and every call counts
    operation: Operation, args: Sequence[Any]
) -> tuple[Key, list[int]]:
    """Returns the dtypes and devices of an op, and its integers as `ring.sizes` decodes them.

    Empty lists of tensors belong to the other side of a gather or scatter: they are left out,
    because they are unknown here, not empty.
    """
    kinds: list[Any] = []
    integers: list[int] = []
    if not operation.barrier:
        for output in (False, True):
            side: list[Any] = []
            runs: list[int] = []
            count = last = 0
            for argument in operation.tensors:
                if argument.output is output:
                    for tensor in flat(args[argument.position], argument.depth):
                        kind, shape = (tensor.dtype, tensor.device), tensor.shape
                        if kind not in side:
                            side.append(kind)
                        run = [side.index(kind), 1, len(shape), *shape]
                        if count and runs[last] == run[0] and runs[last + 2 :] == run[2:]:
                            runs[last + 1] += 1
                        else:
                            last = len(runs)
                            runs += run
                            count += 1
            if count:
                integers.append(count)
                integers += runs
            kinds.append(tuple(side))
    if operation.in_splits >= 0:
        outgoing, incoming = args[operation.in_splits], args[operation.out_splits]
        integers += (len(outgoing), *outgoing, len(incoming), *incoming)
    if operation.tag >= 0:
        integers.append(args[operation.tag])
    return tuple(kinds), integers


class SignatureTable:
    """Numbers distinct forms, and writes forms and sizes into the ring."""

    def __init__(self, ring: OwnRing) -> None:
        self._ring = ring
        self._numbers = itertools.count(1)
        self._pseudo: dict[tuple[str, str], int] = {}
        self._chunks = itertools.count(1)
        self._half = ring.shape.chunks // 2
        self.floor: list[float] = [0.0]
        """Sizes with a lower `Written[2]` must be written again."""
        self.take_chunks: Callable[[int], int] | None = None
        """Set where native kernels write sizes: takes consecutive chunks, returns the first."""
        self._write_sizes = self._sizes_writer()

    def writer_of(
        self, operation: Operation, varying: Splits | None = None
    ) -> tuple[dict[Key, Written], Callable[[Key, Sequence[Any]], Written]]:
        """Returns what has been written for an op, by key, and a function that writes a new key.

        Two threads may number one form twice. A lock would cost more, and a raising signal handler
        would leave it locked.
        """
        known: dict[Key, Written] = {}
        oldest: deque[Key] = deque()  # a dict finds its first key slowly once many are gone
        forms: dict[Key, int] = {}
        encoded, write_sizes = encoder(operation), self._write_sizes
        splits_at, counted = operation.in_splits, varying or Splits()

        def write(key: Key, args: Sequence[Any]) -> Written:
            kinds, integers = encoded(args)
            form = forms.get(kinds)
            if form is None:
                form = forms[kinds] = self._enter(_form(operation, kinds))
            position = write_sizes(integers) if integers else 0
            written = form, position, position or math.inf
            if key is UNKEYED:
                return written
            limit = MAX_KEYS
            if splits_at >= 0:
                counted.written += 1
                limit = max(MIN_KEYS, MAX_SPLITS // (1 + len(args[splits_at])))
            if key not in known:
                oldest.append(key)
                if len(oldest) > limit:
                    known.pop(oldest.popleft(), None)
            known[key] = written
            return written

        return known, write

    def form_finder(self, operation: Operation) -> Callable[[Sequence[Any]], int]:
        """Returns a function from an op's arguments to the id of its form."""
        encoded, forms = encoder(operation), dict[Key, int]()

        def find(args: Sequence[Any]) -> int:
            kinds, _ = encoded(args)
            if (form := forms.get(kinds)) is None:
                form = forms[kinds] = self._enter(_form(operation, kinds))
            return form

        return find

    def pseudo(self, kind: str, members: str = "") -> int:
        """Returns the id of a form with a kind and the required members, if known."""
        number = self._pseudo.get((kind, members), 0)
        if not number:
            entry = {"kind": kind, "members": members} if members else {"kind": kind}
            number = self._pseudo[kind, members] = self._enter(entry)
        return number

    def _enter(self, form: dict[str, Any]) -> int:
        number = next(self._numbers)
        if self._ring.write_entry(Side.FORM, number, form):
            return number
        self._ring.cells[StatusCell.SIDE_LOST] += 1
        return 0

    def _sizes_writer(self) -> Callable[[list[int]], int]:
        """Returns a function that writes a record.

        That function returns the record's position, or 0 if it is too long or threads interfere.
        """
        data, shape, floor, half = self._ring.map, self._ring.shape, self.floor, self._half
        numbers, chunks, at = self._chunks, shape.chunks, shape.sizes_offset
        end, most, width = at + chunks * layout.CHUNK, shape.chunks // 4, layout.CHUNK
        pack, make, chunks_of, skip = sizes.pack, sizes.record, sizes.chunks, itertools.islice

        def write_sizes(integers: list[int]) -> int:
            packed = pack(integers)
            if packed is None or (count := chunks_of(packed[0])) > most:
                return 0
            for _ in range(_TRIES):
                if self.take_chunks is not None:
                    first = self.take_chunks(count)
                    last = first + count - 1
                else:
                    first = last = next(numbers)
                if count > 1 and self.take_chunks is None:
                    last = deque(skip(numbers, count - 1), 1)[0]
                    if last - first != count - 1:
                        continue  # another thread took one of them
                record = make(first, *packed)
                begin = at + first % chunks * width
                after = begin + len(record)
                if after <= end:
                    data[begin:after] = record
                else:
                    data[begin:end] = record[: end - begin]
                    data[at : at + after - end] = record[end - begin :]
                if last - half > floor[0]:  # noqa: PLR1730 - a call may switch threads
                    floor[0] = last - half
                return first
            return 0

        return write_sizes


def _form(operation: Operation, kinds: Key) -> dict[str, Any]:
    form: dict[str, Any] = {"kind": operation.kind}
    for name, side in zip(("inputs", "outputs"), kinds, strict=False):
        if side:
            form[name] = [
                [str(dtype).removeprefix("torch."), str(device)] for dtype, device in side
            ]
    if operation.root >= 0:
        form["party"] = "root"
    elif operation.peer >= 0:
        form["party"] = "peer"
    if operation.in_splits >= 0:
        form["splits"] = True
    if operation.tag >= 0:
        form["tag"] = True
    return form
