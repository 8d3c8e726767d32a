"""Numbers as messages and files may hold them.

Sums and differences of two integers fit 64 bits, so that what is made of them can be sent and
saved, too. A real number is one: NaN and infinities are refused; None says that it is not known.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

LARGEST: Final = 2**62
Int = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Real = Annotated[float, Meta(ge=-1e300, le=1e300)]
