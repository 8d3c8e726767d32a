"""Computes statistics of sampled tensors from copies of their bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final
from zlib import crc32

from frtop_probe.recorder.tensors.tensor_stats import TensorStats


class NumberStats(TensorStats):
    """`TensorStats` with zeros, subnormal values, and the sum of magnitudes."""

    def __init__(self, torch: Any, dtype: Any) -> None:
        super().__init__(torch, dtype)
        self.zeros = self.subnormals = 0
        self.first_nan = self.first_infinity = -1
        """Index of the first one among the values; -1 for none."""
        self._counted = 0
        self._magnitudes = 0.0
        real = self._real
        self._tiny = float(torch.finfo(real).tiny) if real.is_floating_point else 0.0

    @property
    def finite(self) -> int:
        return self._finite

    @property
    def magnitude(self) -> float:
        return self._magnitudes

    @property
    def extremes(self) -> tuple[float, float, float]:
        """Minimum, maximum and norm of the finite values; infinite or 0 if there are none."""
        return self._least, self._most, self._norm

    def _count(self, values: Any) -> None:
        nans, infinities = self.nans, self.infinities
        super()._count(values)
        torch = self._torch
        if self.nans > nans and self.first_nan < 0:
            self.first_nan = self._counted + int(values.isnan().to(torch.uint8).argmax())
        if self.infinities > infinities and self.first_infinity < 0:
            self.first_infinity = self._counted + int(values.isinf().to(torch.uint8).argmax())
        self._counted += values.numel()
        magnitudes = values.abs()
        zeros = values.numel() - int(torch.count_nonzero(values))
        self.zeros += zeros
        if self._tiny:
            self.subnormals += int((magnitudes < self._tiny).sum()) - zeros
        total = float(magnitudes.sum())
        if not math.isfinite(total):
            total = float(magnitudes[magnitudes.isfinite()].sum())
        self._magnitudes += total


class SampleStats:
    """Statistics of all tensors of one sample; its checksum is over their checksums."""

    def __init__(self) -> None:
        self._parts: list[NumberStats] = []
        self._crc = 0
        self._values = 0
        self._first_nan = self._first_infinity = -1

    def add(self, torch: Any, dtype: Any, data: memoryview) -> None:
        """Adds a tensor by its bytes."""
        stats = NumberStats(torch, dtype)
        for start in range(0, len(data), stats.piece):
            stats.add(data[start : start + stats.piece])
        self._parts.append(stats)
        if self._first_nan < 0 <= stats.first_nan:
            self._first_nan = self._values + stats.first_nan
        if self._first_infinity < 0 <= stats.first_infinity:
            self._first_infinity = self._values + stats.first_infinity
        self._values += len(data) // int(dtype.itemsize)
        self._crc = crc32(stats.checksum.encode(), self._crc)

    @property
    def first_bad(self) -> int:
        """Index of the first NaN among all values, else of the first Inf; -1 for none."""
        return self._first_nan if self._first_nan >= 0 else self._first_infinity

    def by_name(self) -> dict[str, Any]:
        """Returns the figures by field name of `Sample`."""
        parts = self._parts
        finite = sum(one.finite for one in parts)
        found: dict[str, float | None] = {}
        if finite:
            least, most, norms = zip(*(one.extremes for one in parts), strict=True)
            numbers = {
                "minimum": min(least),
                "maximum": max(most),
                "magnitude": sum(one.magnitude for one in parts) / finite,
                "norm": math.hypot(*norms),
            }
            found = {name: one if math.isfinite(one) else None for name, one in numbers.items()}
        return {
            "checksum": f"{self._crc:08x}" if parts else "",
            "nans": sum(one.nans for one in parts),
            "infinities": sum(one.infinities for one in parts),
            "zeros": sum(one.zeros for one in parts),
            "subnormals": sum(one.subnormals for one in parts),
            **found,
            "error": next((one.error for one in parts if one.error), ""),
        }


@dataclass(slots=True)
class Sample:
    """The fields of `wire.NumberSample`; figures and number follow once the copies are counted."""

    group: int
    number: int
    kind: str
    role: str
    taken: str
    step: int
    at_ns: int
    site: int
    issuer: int = 0
    parameter: str = ""
    parameters: Sequence[tuple[str, int]] = ()
    """Names and sizes of the parameters whose gradients the op carries, in its order."""
    n: int = 0
    dtype: str = ""
    elements: int = 0
    size: int = 0
    seen: int = 0
    shard: bool = False
    checksum: str = ""
    nans: int = 0
    infinities: int = 0
    zeros: int = 0
    subnormals: int = 0
    error: str = ""
    minimum: float | None = None
    maximum: float | None = None
    magnitude: float | None = None
    norm: float | None = None
    peer: int = -1
    tag: int = 0
    message: int = 0
    shape: str = ""

    def parameter_at(self, place: int) -> str:
        """Returns the name of the parameter that contains a value; "" if unknown."""
        for name, values in self.parameters if place >= 0 else ():
            if place < values:
                return name
            place -= values
        return ""

    def row(self) -> dict[str, Any]:
        """Returns the row that an operator gets."""
        names = (one.name for one in fields(self) if one.name != "parameters")
        return {name: getattr(self, name) for name in names}


MOST_TENSORS: Final = 64
"""Most tensors of one sample, which has the first ones of a longer list."""
