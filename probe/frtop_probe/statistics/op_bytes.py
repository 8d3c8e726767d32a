"""Computes from an op's signature how many bytes it moves, as nccl-tests defines size.

If an op splits a buffer among ranks or joins one, its size is the whole buffer of all ranks
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). So the size is the same on
all ranks, and bandwidths can be compared with those of nccl-tests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from frtop_probe import wire

_BITS: Final = re.compile(r"(?:bfloat|float|uint|int|complex|qint|quint)(\d+)")
_MOST: Final = 2**62
"""More than any memory: a larger size is garbage from a broken ring."""
JOINING: Final = ("all_gather", "gather")
"""Kinds whose output is the buffer of all ranks; each rank gives a part."""
SPLITTING: Final = ("reduce_scatter", "scatter")
"""Kinds whose input is the buffer of all ranks; each rank gets a part."""
WITHOUT_DATA: Final = ("barrier", "monitored_barrier")
"""Their tensor is a dummy that selects the device."""


def op_bytes(signature: wire.Signature, members: int) -> int | None:
    """Returns an op's bytes in a group of `members` ranks (0: unknown); None if not known."""
    kind = signature.kind
    if kind in WITHOUT_DATA:
        return 0
    given, taken = tensor_bytes(signature.inputs), tensor_bytes(signature.outputs)
    if kind.startswith(JOINING):
        return taken or _times(given, members)
    if kind.startswith(SPLITTING):
        return given or _times(taken, members)
    return taken if given is None else given


def tensor_bytes(specs: Iterable[wire.TensorSpec] | None) -> int | None:
    """Returns the bytes of all tensors together; None if a dtype or shape is unknown."""
    if specs is None:
        return None
    total = 0
    for one in specs:
        size = _element_bytes(one.dtype)
        if size is None or one.count < 0 or any(length < 0 for length in one.shape):
            return None
        total += one.count * size * math.prod(one.shape)
        if total > _MOST:
            return None
    return total


def _times(part: int | None, members: int) -> int | None:
    """Returns the size of the whole buffer if each rank has a part of this size."""
    if part is None or not members:
        return part if not part else None
    return min(part * members, _MOST)


@lru_cache(maxsize=256)
def _element_bytes(dtype: str) -> int | None:
    """Returns the bytes of one element; None if the dtype is unknown or smaller than a byte."""
    if dtype == "bool":
        return 1
    found = _BITS.match(dtype)
    bits = int(found[1]) if found and len(found[1]) <= 3 else 0
    return bits // 8 or None
