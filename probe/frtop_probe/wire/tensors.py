"""Summaries of the tensors of pending ops, as ranks give them."""

from __future__ import annotations

from frtop_probe.wire.declaration import Response
from frtop_probe.wire.values import Int, Real, Value


class TensorSummary(Value, frozen=True):
    """A summary of one tensor. `role` is "input" or "output"; `size` is in bytes.

    The first `seen` of `elements` values were read within the time limit; the statistics ignore NaN
    and Inf, and are None if nothing is left. `first` are the first values as text.
    `checksum` covers the bytes of the values seen: ranks with equal data have equal checksums.
    `error` says why there is no more than a shape.
    """

    role: str
    dtype: str
    shape: tuple[Int, ...]
    device: str
    size: Int
    elements: Int
    seen: Int = 0
    minimum: Real | None = None
    maximum: Real | None = None
    mean: Real | None = None
    norm: Real | None = None
    nans: Int = 0
    infinities: Int = 0
    first: tuple[str, ...] = ()
    checksum: str = ""
    error: str = ""


class OpTensors(Value, frozen=True):
    """The tensors of one pending op, inputs first. `error` says why there are none."""

    sequence: Int
    tensors: tuple[TensorSummary, ...] = ()
    error: str = ""


class TensorsResponse(Response, frozen=True, array_like=True, tag="tensors"):
    """The tensors of a rank's pending ops at `at_ns`.

    `error` is one of "", "gone", "silent" (the rank holds the GIL), "stopped", "deadline", "none"
    (nothing pending), "missing" (no responder), "failed"; `help` is the message for the user,
    with the next step.
    """

    host: str
    key: Int
    at_ns: Int
    ops: tuple[OpTensors, ...] = ()
    error: str = ""
    help: str = ""
