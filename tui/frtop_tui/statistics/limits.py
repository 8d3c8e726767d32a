"""How much slower than another a run may be: `step=5%,skew=10%+1ms`."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final, NamedTuple

STEP_FIGURES: Final = ("step", "data", "forward", "backward", "optimizer", "communication", "own")
"""Measured in each step, on the rank on which it took longest."""
LINE_FIGURES: Final = ("skew", "transfer")
"""Measured on the sampled ops of each line: one check per line."""
FIGURES: Final = (*STEP_FIGURES, *LINE_FIGURES)
MOST_SHARE: Final = 100.0
"""A hundredfold limit is a typo."""
MOST_NS: Final = 3_600_000_000_000
_UNITS: Final = {"us": 1e3, "ms": 1e6, "s": 1e9}
_LIMIT: Final = re.compile(
    r"(?:(?P<share>[0-9.]+) ?%)?\+?(?:(?P<time>[0-9.]+) ?(?P<unit>us|ms|s))?"
)


class Limit(NamedTuple):
    """`figure` may grow by this share of its earlier value, plus this time."""

    figure: str
    share: float = 0.0
    ns: int = 0

    @property
    def words(self) -> str:
        """`+10 % +1 ms`."""
        parts = [f"+{100 * self.share:g} %"] if self.share or not self.ns else []
        parts += [f"+{self.ns / 1e6:g} ms"] if self.ns else []
        return " ".join(parts)


def limits_of(text: str) -> tuple[Limit, ...]:
    """Reads limits.

    Raises:
        ValueError: says what is wrong, and what would be right.
    """
    found = [_limit(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError(f"no limit was given: {_HOW}")
    names = [one.figure for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} has two limits")
    return tuple(found)


_HOW: Final = "a figure, `=`, and a share, a time or both, as in step=5%,skew=10%+1ms"


def _limit(text: str) -> Limit:
    name, equals, limit = (part.strip() for part in text.partition("="))
    if name not in FIGURES:
        near = get_close_matches(name, FIGURES, 1)
        hint = f"did you mean {near[0]}?" if near else f"figures are {', '.join(FIGURES)}"
        raise ValueError(f"{name!r} is not a figure: {hint}")
    match = _LIMIT.fullmatch(limit)
    if not equals or not limit or match is None:
        raise ValueError(f"{text!r} is not a limit: {_HOW}")
    try:
        share = float(match["share"] or 0) / 100
        time = float(match["time"] or 0) * _UNITS[match["unit"] or "s"]
    except ValueError:
        raise ValueError(f"{limit!r} has no number: {_HOW}") from None
    if share > MOST_SHARE or time > MOST_NS:
        raise ValueError(f"{limit!r} is too much: at most {100 * MOST_SHARE:g}% and an hour")
    return Limit(name, share, round(time))
