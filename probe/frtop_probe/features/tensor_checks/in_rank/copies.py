"""Copies the program's tensors at the end of an op, in the thread that waited for it.

That thread only calls accessors of torch: the kernel copies the bytes (`/proc/self/mem` returns an
error where a plain load would raise a signal), and another thread does the rest with the copy. So
the program's autograd, random numbers, modes and profilers do not notice.

Copies wait in one mapping, apart from malloc. Threads of the program reserve blocks in it, and our
thread frees them, roughly in order. Nobody waits for room: a tensor without room is not copied.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from frtop_probe.features.tensor_checks.in_rank.stats import MOST_TENSORS
from frtop_probe.recorder.ops.signatures import flat
from frtop_probe.recorder.tensors.memory_reader import OWN_MEMORY
from frtop_probe.recorder.tensors.tensor_memory import MemoryRange, UnreadableTensor, locate

MAX_COPY: Final = 32 * 1024 * 1024
"""Most bytes of one sample; a larger one has only the first bytes, and says so."""
MOST_SHAPES: Final = 4
MOST_LETTERS: Final = 120
"""Most letters of the shapes of one sample."""
ON_DEVICE: Final = "in the memory of a device: a read would wait for the device"
NO_ROOM: Final = "the buffer was full of copies that wait to be counted"
_MADV_DONTFORK: Final = 10
NO_MEMORY: Final = "the kernel does not let this process read its own memory"


class CopyBlock:
    """Used bytes of the buffer, until `free` is set; the next `reserve` takes them back.

    Setting it needs no lock: if our low-priority thread were paused while it holds a lock, the
    program's threads could not copy.
    """

    __slots__ = ("free", "offset", "size")

    def __init__(self, offset: int, size: int) -> None:
        self.offset = offset
        self.size = size
        self.free = False


class CopyBuffer:
    """A ring of blocks in anonymous memory, which a forked child does not have."""

    def __init__(self, size: int) -> None:
        """Maps `size` bytes; only a write touches a page."""
        self.size = size
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._map.madvise(_MADV_DONTFORK)
        self._view = memoryview(self._map)
        self._blocks: deque[CopyBlock] = deque()
        self._lock = threading.Lock()

    def reserve(self, size: int) -> CopyBlock | None:
        """Takes a block; None if there is no room, or another thread has the lock."""
        # Without waiting: a signal handler may have interrupted this thread right here.
        if not 0 < size <= self.size or not self._lock.acquire(blocking=False):
            return None
        try:
            blocks = self._blocks
            first, end = self._used()
            if end > first or not blocks:
                if self.size - end >= size:
                    offset = end
                elif size < first:
                    offset = 0
                else:
                    return None
            elif size < first - end:
                offset = end
            else:
                return None
            block = CopyBlock(offset, size)
            blocks.append(block)
            return block
        finally:
            self._lock.release()

    def fill(self) -> float:
        """Returns how full it is, from 0 to 1; also 1 if another thread has the lock."""
        if not self._lock.acquire(blocking=False):
            return 1.0
        try:
            first, end = self._used()
            if not self._blocks:
                return 0.0
            return (end - first if end > first else self.size - first + end) / self.size
        finally:
            self._lock.release()

    def _used(self) -> tuple[int, int]:
        """Takes back free blocks; returns where the used bytes begin and end."""
        blocks = self._blocks
        while blocks and blocks[0].free:
            blocks.popleft()
        if not blocks:
            return 0, 0
        return blocks[0].offset, blocks[-1].offset + blocks[-1].size

    def view(self, block: CopyBlock) -> memoryview:
        return self._view[block.offset : block.offset + block.size]


CopyPart = tuple[Any, int]
"""Dtype of a tensor, and how many of its bytes were copied."""


@dataclass(slots=True)
class TensorCopies:
    """Copies of the tensors of one sample: dtype and bytes of each, one after the other."""

    block: CopyBlock | None
    parts: tuple[CopyPart, ...]
    dtypes: str
    elements: int
    size: int
    error: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    shard: bool = False
    """Whether a tensor is part of a distributed one: each rank has a different part."""

    @property
    def seen(self) -> int:
        return sum(size for _, size in self.parts)

    @property
    def shape(self) -> str:
        """`[256, 256]`, `[3] x 4, [8]`."""
        runs = [(list(one), sum(1 for _ in equal)) for one, equal in itertools.groupby(self.shapes)]
        said = [f"{one} x {count}" if count > 1 else str(one) for one, count in runs[:MOST_SHAPES]]
        return ", ".join(said + ["..."] * (len(runs) > MOST_SHAPES))[:MOST_LETTERS]


def tensors_of(operation: Any, args: Sequence[Any], *, outputs: bool) -> list[Any]:
    """Returns the tensors that an op reads, or those that receive its result."""
    has_outputs = any(argument.output for argument in operation.tensors)
    return [
        tensor
        for argument in operation.tensors
        if argument.output is (outputs and has_outputs)
        for tensor in flat(args[argument.position], argument.depth)
        if tensor is not None
    ]


def local_part(tensor: Any) -> tuple[Any, bool]:
    """Returns the part of a distributed tensor in this rank, and whether that is only a shard."""
    placements = getattr(tensor, "placements", None)
    if placements is None or not hasattr(tensor, "_local_tensor"):
        return tensor, False
    sharded = not all(one.is_replicate() for one in placements)
    return tensor._local_tensor, sharded  # noqa: SLF001


def copy_tensors(torch: Any, buffer: CopyBuffer, tensors: Iterable[Any]) -> TensorCopies:
    """Copies the tensors; `error` says why nothing was copied."""
    ranges: list[tuple[Any, MemoryRange]] = []
    dtypes: list[str] = []
    shapes: list[tuple[int, ...]] = []
    elements = size = 0
    shard = False

    def copied(
        block: CopyBlock | None = None, parts: tuple[CopyPart, ...] = (), error: str = ""
    ) -> TensorCopies:
        named, of = _folded(dtypes), tuple(shapes[:MOST_TENSORS])
        return TensorCopies(block, parts, named, elements, size, error, of, shard)

    try:
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            for given in tensors:
                tensor, sharded = local_part(given)
                shard |= sharded
                dtypes.append(str(tensor.dtype).removeprefix("torch."))
                shapes.append(tuple(tensor.shape))
                elements += int(tensor.numel())
                size += int(tensor.numel()) * int(tensor.dtype.itemsize)
                if tensor.device.type != "cpu":
                    raise UnreadableTensor(ON_DEVICE)
                if len(ranges) < MOST_TENSORS:
                    ranges.append((tensor.dtype, locate(torch, tensor)))
    except UnreadableTensor as why:
        return copied(error=str(why))
    total = min(sum(aligned(one.size) for _, one in ranges), MAX_COPY)
    if not total:
        return copied()
    block = buffer.reserve(total)
    if block is None:
        return copied(error=NO_ROOM)
    try:
        return copied(block, _read(ranges, buffer.view(block)))
    except (OSError, OverflowError):
        block.free = True
        return copied(error=NO_MEMORY)


def _read(ranges: Sequence[tuple[Any, MemoryRange]], view: memoryview) -> tuple[CopyPart, ...]:
    """Reads as much of the ranges as there is room for.

    Raises:
        OSError: the memory cannot be read.
    """
    parts, at = [], 0
    memory = os.open(OWN_MEMORY, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for dtype, one in ranges:
            wanted = max(0, min(one.size, len(view) - at))
            wanted -= wanted % int(dtype.itemsize)
            if wanted and os.preadv(memory, [view[at : at + wanted]], one.address) != wanted:
                raise OSError
            parts.append((dtype, wanted))
            at += aligned(wanted)
    finally:
        os.close(memory)
    return tuple(parts)


def aligned(size: int) -> int:
    """Returns where the next copy begins, aligned for vectors of values."""
    return -(-size // 64) * 64


def _folded(dtypes: Sequence[str]) -> str:
    """`float32`, or `bfloat16, float32`."""
    return ", ".join(dict.fromkeys(dtypes))
