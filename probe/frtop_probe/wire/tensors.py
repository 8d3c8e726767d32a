"""Summaries of the tensors of pending ops."""

from __future__ import annotations

from msgspec import Struct


class TensorSummary(Struct, frozen=True, array_like=True):
    """A summary of one tensor. `role` is "input" or "output"; `size` is in bytes.

    Of `elements` values, the first `seen` were read within the time limit; the statistics ignore
    NaN and Inf, and are None when nothing is left. `first` are the first values as text.
    `checksum` covers the bytes of the values seen: ranks with equal data have equal checksums.
    `error` says why there is no more than a shape.
    """

    role: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    size: int
    elements: int
    seen: int = 0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    norm: float | None = None
    nans: int = 0
    infinities: int = 0
    first: tuple[str, ...] = ()
    checksum: str = ""
    error: str = ""


class OpTensors(Struct, frozen=True, array_like=True):
    """The tensors of one pending op, inputs first. `error` says why there are none."""

    sequence: int
    tensors: tuple[TensorSummary, ...] = ()
    error: str = ""
