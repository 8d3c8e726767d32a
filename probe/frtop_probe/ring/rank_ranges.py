"""Lists of ranks as text, such as `0-36,38-63`.

ClusterShell's RangeSet does the same 50 times more slowly; this runs for every group row.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

LONG = 256
"""Characters of a list that `fold_short` writes in full."""
MAX_RANKS = 1_000_000
"""Longest list that `unfold` returns, so that text from outside cannot exhaust memory."""
LARGEST = 1 << 62
"""No rank is larger: it would not fit into messages."""


def fold(ranks: Iterable[int]) -> str:
    """Returns ranks as sorted ranges without duplicates: `[0, 1, 2, 5]` becomes `"0-2,5"`."""
    ordered = sorted(set(ranks))
    # Finding the ends of runs is ten times as fast as going rank by rank.
    ends = [n for n, (a, b) in enumerate(pairwise(ordered), 1) if b - a > 1]
    runs = ((ordered[a], ordered[b - 1]) for a, b in pairwise([0, *ends, len(ordered)]) if b > a)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def fold_short(ranks: Iterable[int]) -> str:
    """Returns what `fold` does, but long lists of evenly spaced ranks as `0-99992/8`.

    Each rank of a job has such lists, so they would grow with the square of its size.
    """
    ordered = sorted(set(ranks))
    text = fold(ordered)
    if len(text) <= LONG:
        return text
    even = range(ordered[0], ordered[-1] + 1, ordered[1] - ordered[0])
    return f"{even[0]}-{even[-1]}/{even.step}" if ordered == [*even] else text


def unfold(text: str) -> tuple[int, ...]:
    """Returns the ranks in a text of ranges; the inverse of `fold` and of `fold_short`.

    Raises:
        ValueError: the text is no such list, or has more than `MAX_RANKS` ranks.
    """
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        last, slash, step = last.partition("/")
        found = range(int(first), int(last or first) + 1, int(step) if slash else 1)
        if not found or found.step < 1 or found[-1] > LARGEST:  # it may have no length
            raise ValueError(f"not a list of ranks: {text[:80]!r}")
        if len(ranks) + len(found) > MAX_RANKS:
            raise ValueError(f"not a list of ranks: {text[:80]!r}")
        ranks.extend(found)
    return tuple(ranks)
