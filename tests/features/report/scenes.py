"""Values as ranks report them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from frtop_probe import wire
from frtop_probe.statistics.reported_values import ReportedValue, packed

LR: Final = (0.1, 0.1, 0.05, 0.05, 0.01)
OTHER_LR: Final = (0.1, 0.1, 0.1, 0.05, 0.02)


def sent(name: str, values: Sequence[float], first: int = 1) -> wire.ReportedValues:
    """Values of consecutive steps, as an agent sends them."""
    rows = [ReportedValue(step, value) for step, value in enumerate(values, first)]
    not_finite = sum(not math.isfinite(value) for value in values)
    return packed(name, rows, first, not_finite)


def loss(rank: int, steps: int = 5) -> list[float]:
    """Falls on every rank, and is nowhere the same."""
    return [1 / (step + 1) + rank / 7 for step in range(steps)]
