"""Values of options, checked while the command line is parsed.

Each function raises `argparse.ArgumentTypeError` with what the value has to be.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from frtop_tui.statistics.limits import Limit, limits_of


def rank(text: str) -> int:
    """A global rank."""
    if not text.isdecimal():
        hint = "; files come before --rank" if Path(text).exists() else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a rank: ranks are 0, 1, 2 ...{hint}")
    return int(text)


def number(text: str) -> int:
    """An op's number, from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an op's number")
    return int(text)


def note(text: str) -> str:
    """One for the rings of ranks."""
    from frtop_tui.features.tensor_checks.orders import note_problem  # noqa: PLC0415 - the parser stays quick

    text = text.strip()
    if problem := note_problem(text):
        raise argparse.ArgumentTypeError(problem)
    return text


def every(text: str) -> int:
    """Of how many one is taken, from 1 on."""
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r}: 1 is every one, 2 every second one, ...")
    return int(text)


def sampling_seconds(text: str) -> int:
    """Of a rank that samples numbers, from 1 to 3,600: it ends also if nobody ends it."""
    if not text.isdecimal() or not 1 <= int(text) <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds are from 1 to 3600")
    return int(text)


def seconds_up_to(most: int) -> Callable[[str], float]:
    """More than 0, and at most so many."""

    def parse(text: str) -> float:
        value = seconds(text)
        if value > most:
            raise argparse.ArgumentTypeError(f"{text!r}: at most {most} seconds")
        return value

    return parse


def steps(text: str) -> int:
    """Of a profile, from 1 to 100."""
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}: steps are from 1 to 100")
    return int(text)


def count(text: str) -> int:
    """How many, 0 for none."""
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no count: 0, 1, 2 ...")
    return int(text)


def seconds(text: str) -> float:
    """More than 0, at most a day."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds must be more than 0, at most a day")
    return value


def port(text: str) -> int:
    """A port; the next one is used, too."""
    value = int(text) if text.isdecimal() else 0
    if not 1 <= value <= 65534:
        raise argparse.ArgumentTypeError(
            f"{text!r}: ports are 1 to 65534 (the next port is used, too)"
        )
    return value


def limits(text: str) -> tuple[Limit, ...]:
    """By how much a run may be slower, by figure."""
    try:
        return limits_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
