"""Words for what somebody slow costs all others: of the time, of each step, and since it began."""

from __future__ import annotations

from frtop_tui.diagnosis.model import Slowness
from frtop_tui.job.units import percent, timing


def lost_words(slow: Slowness) -> str:
    """`13 % of the time`; with each step's part where it is more than one op shows.

    A rank that is 6 ms late to each of 25 ops of a step costs 150 ms of it.
    """
    words = f"{_share(slow)} of the time"
    lost_ns = _lost_of_step_ns(slow)
    return f"{words}, {timing(lost_ns)} of each step" if lost_ns > 1.5 * slow.late_ns else words


def cost_words(slow: Slowness) -> str:
    """`13 % of the time: 150 ms of each step of 1.20 s; 127 ranks have lost 9.8 GPU hours`."""
    step = ""
    if slow.step_ns:
        lost = timing(_lost_of_step_ns(slow))
        step = f": {lost} of each step of {timing(slow.step_ns)}"
    hours = slow.lost_ns / 3.6e12
    kind = "GPU" if slow.on_gpus else "rank"
    figure = f"{hours:.1f} {kind} hours" if hours >= 1 else f"{60 * hours:.1f} {kind} minutes"
    least = "at least " if slow.at_least or slow.most_share else ""
    have = "ranks have" if slow.waiting != 1 else "rank has"
    return f"{_share(slow)} of the time{step}; {slow.waiting} {have} lost {least}{figure}"


def _share(slow: Slowness) -> str:
    """`13 %`; `6 to 48 %` where only some ops were sampled and nothing tells of the others."""
    least, most = percent(slow.share), percent(slow.most_share)
    is_open = slow.most_share and least != most
    return f"{least.removesuffix(' %')} to {most}" if is_open else least


def _lost_of_step_ns(slow: Slowness) -> float:
    """The part of a step that the others wait; 0 where steps are not recorded."""
    return slow.share * (slow.step_ns or 0)
