"""How many bytes the tensors of an op have, by their dtypes and shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from frtop_probe import wire

_BITS: Final = re.compile(r"(?:bfloat|float|uint|int|complex|qint|quint)(\d+)")
_MOST: Final = 2**62
"""More than any memory: a size beyond it is nonsense from a broken ring."""


def tensor_bytes(specs: Iterable[wire.TensorSpec] | None) -> int | None:
    """Bytes of all these tensors together; None where a dtype or shape is not known."""
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


@lru_cache(maxsize=256)
def _element_bytes(dtype: str) -> int | None:
    """Bytes of one element; None for dtypes that are not known, or of less than a byte."""
    if dtype == "bool":
        return 1
    found = _BITS.match(dtype)
    bits = int(found[1]) if found and len(found[1]) <= 3 else 0
    return bits // 8 or None
