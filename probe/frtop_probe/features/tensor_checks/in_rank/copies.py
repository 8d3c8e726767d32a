"""Copies tensors of the program at the end of an op, in the thread that waited for it.

Nothing of torch runs there but accessors: the kernel copies the bytes (`/proc/self/mem`, an error
where a plain load would be a signal), and all else is done elsewhere from the copy. So autograd,
random numbers, modes and profilers of the program see nothing of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from frtop_probe.features.tensor_checks.in_rank.buffer import CopyBlock, CopyBuffer
from frtop_probe.features.tensor_checks.in_rank.stats import MOST_TENSORS
from frtop_probe.recorder.ops.signatures import flat
from frtop_probe.recorder.tensors.memory_reader import OWN_MEMORY
from frtop_probe.recorder.tensors.tensor_memory import MemoryRange, UnreadableTensor, locate

MAX_COPY: Final = 32 * 1024 * 1024
"""Bytes of one sample; of more the first ones are read, and the sample says so."""
ON_DEVICE: Final = "in the memory of a device: it is not read, as that would wait for the device"
NO_ROOM: Final = "the buffer was full of copies that nobody had counted yet"
NO_MEMORY: Final = "the kernel does not let this process read its own memory"


@dataclass(slots=True)
class TensorCopies:
    """Copies of the tensors of one sample: dtype and bytes of each, one after the other."""

    block: CopyBlock | None
    parts: tuple[tuple[Any, int], ...]
    dtypes: str
    elements: int
    size: int
    error: str = ""
    shard: bool = False
    """Whether a tensor is a part of a distributed one: each rank has another part."""

    @property
    def seen(self) -> int:
        """Bytes that were copied."""
        return sum(size for _, size in self.parts)


def tensors_of(operation: Any, args: Sequence[Any], *, outputs: bool) -> list[Any]:
    """Tensors of an op's arguments that it reads, or those in which it leaves its result."""
    has_outputs = any(argument.output for argument in operation.tensors)
    return [
        tensor
        for argument in operation.tensors
        if argument.output is (outputs and has_outputs)
        for tensor in flat(args[argument.position], argument.depth)
        if tensor is not None
    ]


def local_part(tensor: Any) -> tuple[Any, bool]:
    """A distributed tensor's memory in this rank, and whether that is a part of it only."""
    placements = getattr(tensor, "placements", None)
    if placements is None or not hasattr(tensor, "_local_tensor"):
        return tensor, False
    sharded = not all(one.is_replicate() for one in placements)
    return tensor._local_tensor, sharded  # noqa: SLF001


def copy_tensors(torch: Any, buffer: CopyBuffer, tensors: Iterable[Any]) -> TensorCopies:
    """Copies what they hold now; `error` says why nothing was copied."""
    ranges: list[tuple[Any, MemoryRange]] = []
    dtypes: list[str] = []
    elements = size = 0
    shard = False
    try:
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            for given in tensors:
                tensor, sharded = local_part(given)
                shard |= sharded
                dtypes.append(str(tensor.dtype).removeprefix("torch."))
                elements += int(tensor.numel())
                size += int(tensor.numel()) * int(tensor.dtype.itemsize)
                if tensor.device.type != "cpu":
                    raise UnreadableTensor(ON_DEVICE)
                if len(ranges) < MOST_TENSORS:
                    ranges.append((tensor.dtype, locate(torch, tensor)))
    except UnreadableTensor as why:
        return TensorCopies(None, (), _folded(dtypes), elements, size, str(why), shard)
    named = _folded(dtypes)
    total = min(sum(aligned(one.size) for _, one in ranges), MAX_COPY)
    if not total:
        return TensorCopies(None, (), named, elements, size, shard=shard)
    block = buffer.reserve(total)
    if block is None:
        return TensorCopies(None, (), named, elements, size, NO_ROOM, shard)
    view, parts, at = buffer.view(block), [], 0
    try:
        memory = os.open(OWN_MEMORY, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for dtype, one in ranges:
                wanted = max(0, min(one.size, total - at))
                wanted -= wanted % int(dtype.itemsize)
                if wanted and os.preadv(memory, [view[at : at + wanted]], one.address) != wanted:
                    raise OSError
                parts.append((dtype, wanted))
                at += aligned(wanted)
        finally:
            os.close(memory)
    except (OSError, OverflowError):
        block.free = True
        return TensorCopies(None, (), named, elements, size, NO_MEMORY, shard)
    return TensorCopies(block, tuple(parts), named, elements, size, shard=shard)


def aligned(size: int) -> int:
    """Where the next copy begins: torch reads whole values, and vectors of them."""
    return -(-size // 64) * 64


def _folded(dtypes: Sequence[str]) -> str:
    """`float32`, or `bfloat16, float32`."""
    return ", ".join(dict.fromkeys(dtypes))
