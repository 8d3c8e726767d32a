"""What a person reads before ranks sample: whom it asks, what it replaces, what it cannot show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from frtop_probe.wire.recording import NumberState
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.tensor_checks.orders import JobNumbers
from frtop_tui.job.job_activity import moved_ns
from frtop_tui.job.naming import folded, job_title
from frtop_tui.job.rank_sides import sides_of
from frtop_tui.job.units import duration

QUIET_S: Final = 10.0
"""Without an op of anybody for so long, there may be nothing to sample."""
NOTHING_NEW: Final = (
    ": while no op is issued, there is nothing to sample; `frtop tensors --rank N --members`"
    " compares what is pending"
)


def asked_words(frame: Frame, ranks: Sequence[int]) -> str:
    """`ranks 0-3 of train.py`."""
    return folded(ranks) + (f" of {job_title(frame.job)}" if frame.job is not None else "")


def other_watches(found: JobNumbers, ranks: Sequence[int]) -> Mapping[int, NumberState]:
    """What of these ranks samples now, as far as they have said."""
    said = {rank: one.recorded for rank, one in found.controls.items()}
    known = {rank: one.numbers for rank in ranks if (one := said.get(rank)) is not None}
    return {rank: state for rank, state in known.items() if state.every}


def watch_words(states: Mapping[int, NumberState]) -> Iterator[tuple[str, str]]:
    """`ranks 0-3`, `for mo@node4 PID 17, at most 40 s more`."""
    left: dict[str, int] = {}
    for state in states.values():
        left[state.by] = max(left.get(state.by, 0), state.seconds_left)
    for side in sides_of((rank, state.by) for rank, state in states.items()):
        yield (
            folded(side.ranks),
            f"for {side.value or 'somebody'}, at most {left[side.value]} s more",
        )


def warnings(frame: Frame, found: JobNumbers, ranks: Sequence[int]) -> Iterator[str]:
    """What speaks against sampling these ranks now.

    Args:
        frame: the job.
        found: what ranks record, as they have just said.
        ranks: who would sample.
    """
    for who, words in watch_words(other_watches(found, ranks)):
        verb = "samples" if who.startswith("rank ") else "sample"
        yield f"{who} {verb} already, {words}: that would end, and who began it sees why"
    quiet_s = _quiet_s(frame, ranks)
    if frame.health == "hung":
        yield f"the job hangs{NOTHING_NEW}"
    elif quiet_s > QUIET_S:
        yield f"no op was issued for {duration(quiet_s)}{NOTHING_NEW}"
    if len(ranks) == 1:
        yield f"only {folded(ranks)} is asked: nothing to compare with"


def _quiet_s(frame: Frame, ranks: Sequence[int]) -> float:
    """How long ago the last op or step of these ranks was; 0.0 where that is not known."""
    views = [frame.ranks[rank] for rank in ranks if rank in frame.ranks]
    last = max((moved_ns(view, view.clock_ns) for view in views), default=0)
    return (frame.now_ns - last) / 1e9 if last else 0.0
