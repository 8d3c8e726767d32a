"""Types of options: each raises `argparse.ArgumentTypeError`, which says what it expects."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from frtop_probe.ring.rank_ranges import unfold


def number(text: str) -> int:
    """An op's number, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an op's number")
    return int(text)


def seconds_up_to(most: int) -> Callable[[str], float]:
    """A type for seconds: more than 0, and at most this many."""

    def parse(text: str) -> float:
        value = seconds(text)
        if value > most:
            raise argparse.ArgumentTypeError(f"{text!r}: at most {most} seconds")
        return value

    return parse


def seconds(text: str) -> float:
    """Seconds: more than 0, at most a day."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds must be more than 0, at most a day")
    return value


def rank_list(text: str) -> frozenset[int]:
    """Global ranks, such as 0-3,8."""
    try:
        ranks = frozenset(unfold(text))
    except ValueError:
        ranks = frozenset()
    if not ranks or min(ranks) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of ranks: 0-3,8")
    return ranks


def one_rank(text: str) -> int:
    """The one rank of such a list."""
    first, *more = sorted(rank_list(text))
    if more:
        raise argparse.ArgumentTypeError(f"{text!r} is several ranks, and this takes one")
    return first
