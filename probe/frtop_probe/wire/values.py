"""What messages and files consist of: values, and the numbers that they may hold.

Sums and differences of two integers fit in 64 bits, so results can be sent and saved, too. Floats
must be finite: NaN and infinities are refused. None means unknown.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

LARGEST: Final = 2**62
Int = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Real = Annotated[float, Meta(ge=-1e300, le=1e300)]


def storable(total: int) -> int:
    """A sum of what many sent, as large as a file can hold; none of them is negative."""
    return max(0, min(total, LARGEST))


class Value(Struct, frozen=True, array_like=True, gc=False):
    """A part of a message. It never changes, so it cannot refer to itself.

    The garbage collector need not look at it: an operator of a large job keeps millions.
    """
