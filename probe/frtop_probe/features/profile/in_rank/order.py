"""Checks and bounds what an operator asks of torch's profiler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MAX_STEPS: Final = 100
MAX_SECONDS: Final = 60.0
MAX_WAIT_S: Final = 600.0
"""Longest wait until the thread that trains reaches a step, or an op."""
_TOKEN: Final = re.compile(r"[0-9a-f]{8,32}")


@dataclass(frozen=True, slots=True)
class RankOrder:
    """One order: a number of `steps`, or else of `seconds`.

    The operator chooses `token`: only those who know it can end the order.
    """

    token: str
    steps: int
    seconds: float
    wait_s: float
    shapes: bool
    stacks: bool
    memory: bool
    execution: bool
    """With torch's execution trace observer, which writes the input of Chakra's converter."""


def order_of(request: Mapping[str, Any]) -> RankOrder | None:
    """Returns the order in an unchecked request; None if it is malformed or asks for too much."""
    token, steps = request.get("order"), request.get("steps", 0)
    seconds, wait_s = request.get("seconds", 0.0), request.get("wait_s", 0.0)
    if not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        return None
    if type(steps) is not int or not 0 <= steps <= MAX_STEPS:
        return None
    if not all(type(one) in (int, float) for one in (seconds, wait_s)):
        return None
    # False for NaN.
    if not (0 <= seconds <= MAX_SECONDS and 0 < wait_s <= MAX_WAIT_S and (steps or seconds > 0)):
        return None
    options = (request.get(name) is True for name in ("shapes", "stacks", "memory", "execution"))
    return RankOrder(token, steps, float(seconds), float(wait_s), *options)
