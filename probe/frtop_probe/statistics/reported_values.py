"""Values that a job reports itself, by name: how they are sent, and which of them are remembered.

An agent and an operator remember the same ones: the newest, and the first that are not finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from frtop_probe import wire

MOST: Final = 64
"""Most values of a name that are remembered."""
MOST_OF_RANK: Final = 512
"""Most values of all names of a rank, if it has many."""
FEWEST: Final = 16
NOT_FINITE: Final = 4
"""How many of the first values that are not finite are remembered, however old they are."""
_LARGEST: Final = 1e300


class ReportedValue(NamedTuple):
    """A value, its step, and the how-many-th it is in that step: the last one counts."""

    step: int
    value: float
    times: int = 1


def most_of(names: int) -> int:
    """Returns how many values of a name are remembered if the rank reports this many names."""
    return max(FEWEST, min(MOST, MOST_OF_RANK // max(1, names)))


def remembered(values: Sequence[ReportedValue], names: int) -> list[ReportedValue]:
    """Returns the values to remember of one name, if the rank reports this many names."""
    most = most_of(names)
    if len(values) <= most:
        return list(values)
    old = [one for one in values[:-most] if not math.isfinite(one.value)]
    return [*old[:NOT_FINITE], *values[-most:]]


def added(values: list[ReportedValue], new: ReportedValue) -> None:
    """Adds a value in place; it replaces the last one if that is of the same step."""
    if values and values[-1].step == new.step:
        values[-1] = new
    else:
        values.append(new)


def packed(
    name: str, values: Sequence[ReportedValue], first: int, not_finite: int
) -> wire.ReportedValues:
    """Returns them as they are sent."""
    return wire.ReportedValues(
        name,
        tuple(one.step for one in values),
        tuple(_sendable(one.value) for one in values),
        tuple(one.times for one in values),
        first,
        not_finite,
    )


def joined(
    known: wire.ReportedValues | None, new: wire.ReportedValues, name: str, names: int
) -> wire.ReportedValues:
    """Returns the values with new ones, which may repeat known ones."""
    if known is not None and (quick := _appended(known, new, most_of(names))) is not None:
        return quick
    values = unpacked(known) if known is not None else []
    have = {(one.step, one.times) for one in values}
    for one in unpacked(new):
        if (one.step, one.times) not in have:
            added(values, one)
    return packed(name, remembered(values, names), new.first, new.not_finite)


def _appended(
    known: wire.ReportedValues, new: wire.ReportedValues, most: int
) -> wire.ReportedValues | None:
    """Returns the same where new values only follow known ones, a tenth of the time; else None."""
    if not known.steps or not new.steps or new.steps[0] <= known.steps[-1]:
        return None
    steps, values, times = (
        known.steps + new.steps, known.values + new.values, known.times + new.times,
    )  # fmt: skip
    if not len(steps) == len(values) == len(times):
        return None
    cut = max(0, len(steps) - most)
    if any(isinstance(value, str) for value in values[:cut]):
        return None
    return wire.ReportedValues(
        known.name, steps[cut:], values[cut:], times[cut:], new.first, new.not_finite
    )


def unpacked(sent: wire.ReportedValues, most: int = 2**30) -> list[ReportedValue]:
    """Returns the values that were sent, the newest `most`; leaves out what is no number."""
    found: list[ReportedValue] = []
    columns = sent.steps[-most:], sent.values[-most:], sent.times[-most:]
    for step, value, times in zip(*columns, strict=False):
        try:
            found.append(ReportedValue(step, float(value), times))
        except ValueError:
            continue
    return found


def _sendable(value: float) -> float | str:
    """A message holds no number that is not finite, nor any beyond 1e300: these are texts."""
    return value if -_LARGEST <= value <= _LARGEST else repr(value)
