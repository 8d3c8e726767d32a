"""Floating-point dtypes: their range, and whether a cast to one has made an Inf."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from frtop_tui.features.tensor_checks.samples import OF_TENSORS, RankSample


@dataclass(frozen=True, slots=True)
class Reach:
    """The largest finite value of a dtype, and the smallest normal one."""

    largest: float
    smallest: float


REACHES: Final = {
    "float64": Reach(1.7976931348623157e308, 2.2250738585072014e-308),
    "float32": Reach(3.4028234663852886e38, 1.1754943508222875e-38),
    "bfloat16": Reach(3.3895313892515355e38, 1.1754943508222875e-38),
    "float16": Reach(65504.0, 6.103515625e-05),
    "float8_e5m2": Reach(57344.0, 6.103515625e-05),
    "float8_e4m3fn": Reach(448.0, 0.015625),
}


@dataclass(frozen=True, slots=True)
class CastEvidence:
    """What shows that an Inf came from a cast: larger finite values, in a wider dtype."""

    dtype: str
    role: str
    kind: str
    step: int
    largest: float


def largest(one: RankSample) -> float | None:
    """The largest finite magnitude of a sample; None if nothing was read."""
    sample = one.sample
    if sample.minimum is None or sample.maximum is None:
        return None
    return max(abs(sample.minimum), abs(sample.maximum))


def cast_evidence(bad: RankSample, of_rank: Iterable[RankSample]) -> CastEvidence | None:
    """The largest finite value that the dtype of `bad` cannot hold, if that may have made its Inf.

    It is in a sample of the same rank (`of_rank`), in the same step or the one before.
    """
    reach = REACHES.get(bad.sample.dtype)
    if reach is None:
        return None
    found: CastEvidence | None = None
    for one in of_rank:
        sample = one.sample
        wider = REACHES.get(sample.dtype)
        if (
            sample.role not in OF_TENSORS
            or wider is None
            or wider.largest <= reach.largest
            or sample.infinities
        ):
            continue
        if not bad.sample.step - 1 <= sample.step <= bad.sample.step:
            continue
        value = largest(one)
        if value is not None and value > max(reach.largest, found.largest if found else 0.0):
            found = CastEvidence(sample.dtype, sample.role, one.name, sample.step, value)
    return found
