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

from frtop_probe.recorder.ops.operations import Operation
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring import layout, sizes
from frtop_probe.ring.layout import Side, StatusCell

Key = tuple[Any, ...]
Written = tuple[int, int, float]
"""Form id, position of the sizes (0 if none), and the highest `floor` at which new ops may still
use these sizes."""

MAX_KEYS: Final = 1024
"""Most keys kept per op."""
MAX_SPLITS: Final = 4096
"""Most splits in the keys kept per op: about 0.5 MB."""
MIN_KEYS: Final = 8
_TRIES: Final = 3
"""After other threads have interfered this often, an op stays without sizes."""


class NothingToCommunicate(Exception):
    """The tensors are fake or on the meta device, so nothing is communicated."""


def key_of(operation: Operation, args: Sequence[Any]) -> tuple[Key, bool]:
    """Returns a key of an op's form and sizes, and whether its tensors are on the CPU.

    Raises:
        NothingToCommunicate: the tensors are on the meta device.
    """
    key: list[Any] = []
    on_cpu = True
    if operation.barrier:  # its tensor is a dummy
        on_cpu = args[operation.tensors[0].position].is_cpu
    else:
        for argument in operation.tensors:
            tensors = list(flat(args[argument.position], argument.depth))
            key.append(len(tensors))
            for row, equal in itertools.groupby((t.dtype, t.shape, t.is_cpu) for t in tensors):
                key += (row, sum(1 for _ in equal))
                on_cpu = on_cpu and row[2]
            if not on_cpu and any(tensor.is_meta for tensor in tensors):
                raise NothingToCommunicate
    if operation.in_splits >= 0:
        key += (tuple(args[operation.in_splits]), tuple(args[operation.out_splits]))
    if operation.tag >= 0:
        key.append(args[operation.tag])
    return tuple(key), on_cpu


def flat(value: Any, depth: int) -> Iterator[Any]:
    """Yields the tensors of an argument, in order."""
    if depth == 0:
        yield value
    elif depth == 1:
        yield from value
    else:
        for inner in value:
            yield from inner


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
        self, operation: Operation
    ) -> tuple[dict[Key, Written], Callable[[Key, Sequence[Any]], Written]]:
        """Returns what has been written for an op, by key, and a function that writes a new key.

        Two threads may number one form twice. A lock would cost more, and a raising signal handler
        would leave it locked.
        """
        known: dict[Key, Written] = {}
        oldest: deque[Key] = deque()  # a dict finds its first key slowly once many are gone
        forms: dict[Key, int] = {}
        write_sizes, splits_at = self._write_sizes, operation.in_splits

        def write(key: Key, args: Sequence[Any]) -> Written:
            kinds, integers = encode(operation, args)
            form = forms.get(kinds)
            if form is None:
                form = forms[kinds] = self._enter(_form(operation, kinds))
            position = write_sizes(integers) if integers else 0
            limit = MAX_KEYS
            if splits_at >= 0:
                limit = max(MIN_KEYS, MAX_SPLITS // (1 + len(args[splits_at])))
            if key not in known:
                oldest.append(key)
                if len(oldest) > limit:
                    known.pop(oldest.popleft(), None)
            written = known[key] = form, position, position or math.inf
            return written

        return known, write

    def form_finder(self, operation: Operation) -> Callable[[Sequence[Any]], int]:
        """Returns a function from an op's arguments to the id of its form."""
        forms: dict[Key, int] = {}

        def find(args: Sequence[Any]) -> int:
            kinds, _ = encode(operation, args)
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
