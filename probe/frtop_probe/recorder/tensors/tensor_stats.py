"""Statistics of a tensor, computed piece by piece from a copy of its bytes.

Pieces are so small that torch does not split the work over threads: it would start a thread pool
only for us.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Final

MAX_VALUES: Final = 16_384
"""Values in a piece: half the number from which torch uses several threads."""
FIRST: Final = 8


class TensorStats:
    """Statistics of the values of one tensor, in double precision for every dtype.

    Complex values count by magnitude; a value with a NaN in either part counts as NaN, else
    one with an Inf in either part as Inf. The checksum is a CRC over the bytes in memory
    order: it detects every difference within 32 consecutive bits, so one wrong value never hides.
    """

    def __init__(self, torch: Any, dtype: Any) -> None:
        self._torch = torch
        self._dtype = dtype
        self._complex: bool = dtype.is_complex
        self._real = dtype.to_real() if dtype.is_complex else dtype
        self.piece: int = MAX_VALUES * self._real.itemsize
        """Size of a piece in bytes."""
        self.nans = self.infinities = 0
        self.first: tuple[str, ...] = ()
        self.error = ""
        self._crc = 0
        self._finite = 0
        self._sum = self._norm = 0.0
        self._least, self._most = math.inf, -math.inf

    def add(self, piece: bytearray | memoryview, *, begins: bool = False) -> None:
        """Adds the next piece; `begins` marks the tensor's first piece."""
        self._crc = zlib.crc32(piece, self._crc)
        if self.error:
            return
        try:
            if begins:
                self.first = self._texts(piece)
            self._count(self._doubles(piece))
        except (RuntimeError, NotImplementedError, TypeError) as error:
            # Packed and other unusual dtypes: torch can transport them, but not compute with them.
            why = str(error).partition("\n")[0][:120]
            self.error = f"torch cannot compute with {self._dtype}, so bytes only ({why})"

    @property
    def checksum(self) -> str:
        return f"{self._crc:08x}"

    @property
    def statistics(self) -> tuple[float | None, ...]:
        """Minimum, maximum, mean and norm of the finite values; None if there are none."""
        if not self._finite:
            return None, None, None, None
        values = (self._least, self._most, self._sum / self._finite, self._norm)
        # The sum of squares of large doubles may overflow.
        return tuple(value if math.isfinite(value) else None for value in values)

    @property
    def by_name(self) -> dict[str, Any]:
        """The fields of `wire.TensorSummary`."""
        figures = dict(zip(("minimum", "maximum", "mean", "norm"), self.statistics, strict=True))
        return {
            **figures,
            "nans": self.nans,
            "infinities": self.infinities,
            "first": self.first,
            "checksum": self.checksum,
            "error": self.error,
        }

    def _doubles(self, piece: bytearray | memoryview) -> Any:
        torch, values = self._torch, self._values(piece).to(self._torch.float64)
        if not self._complex:
            return values
        pairs = values.view(-1, 2)
        magnitudes = torch.hypot(pairs[:, 0], pairs[:, 1])  # Inf for (NaN, Inf)
        return torch.where(torch.isnan(pairs).any(1), math.nan, magnitudes)

    def _count(self, values: Any) -> None:
        torch = self._torch
        total = float(values.sum())
        if not math.isfinite(total):
            nans, infinities = int(values.isnan().sum()), int(values.isinf().sum())
            self.nans += nans
            self.infinities += infinities
            if nans or infinities:
                values = values[values.isfinite()]
                total = float(values.sum())
        if not values.numel():
            return
        least, most = torch.aminmax(values)
        self._least, self._most = min(self._least, float(least)), max(self._most, float(most))
        self._finite += values.numel()
        self._sum += total
        self._norm = math.hypot(self._norm, float(torch.linalg.vector_norm(values)))

    def _values(self, piece: bytearray | memoryview) -> Any:
        """Returns the values; complex ones as alternating real and imaginary parts.

        Torch warns about its own smallest complex type.
        """
        torch = self._torch
        if self._dtype == torch.bool:
            # Bytes other than 0 and 1 must not be undefined behaviour here.
            return torch.frombuffer(piece, dtype=torch.uint8) != 0
        return torch.frombuffer(piece, dtype=self._real)

    def _texts(self, piece: bytearray | memoryview) -> tuple[str, ...]:
        values = self._values(piece[: FIRST * self._dtype.itemsize]).tolist()
        if not self._real.is_floating_point:
            return tuple(map(str, values))
        texts = [_shortest(value, _DIGITS[self._real.itemsize]) for value in values]
        if not self._complex:
            return tuple(texts)
        parts = zip(texts[::2], texts[1::2], strict=True)
        return tuple(f"{a}{b if b[0] == '-' else '+' + b}j" for a, b in parts)


def _shortest(value: float, digits: int) -> str:
    text = f"{value:.{digits - 1}g}"
    return text if float(text) == value else f"{value:.{digits}g}"


_DIGITS: Final = {1: 4, 2: 5, 4: 9, 8: 17}
"""Digits that distinguish any two values, by bytes of a value."""
