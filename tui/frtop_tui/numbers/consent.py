"""What a person reads before ranks sample: whom it asks, what it replaces, what it cannot show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import folded, job_title
from frtop_tui.numbers.orders import JobNumbers
from frtop_tui.numbers.sides import sides_of

HANGS = (
    "the job hangs: while no op is issued, there is nothing to sample; `frtop tensors --rank N"
    " --members` compares what is pending"
)


def asked_words(frame: Frame, ranks: Sequence[int]) -> str:
    """`ranks 0-3 of train.py`."""
    return folded(ranks) + (f" of {job_title(frame.job)}" if frame.job is not None else "")


def other_watches(found: JobNumbers, ranks: Sequence[int]) -> Mapping[int, wire.NumberState]:
    """What of these ranks samples now, as far as they have said."""
    said = {rank: one.recorded for rank, one in found.controls.items()}
    known = {rank: one.numbers for rank in ranks if (one := said.get(rank)) is not None}
    return {rank: state for rank, state in known.items() if state.every}


def watch_words(states: Mapping[int, wire.NumberState]) -> Iterator[tuple[str, str]]:
    """`ranks 0-3`, `for mo@node4 PID 17, at most 40 s more`."""
    left: dict[str, int] = {}
    for state in states.values():
        left[state.by] = max(left.get(state.by, 0), state.seconds_left)
    for side in sides_of((rank, state.by) for rank, state in states.items()):
        whose = side.value or "somebody whom an earlier build does not name"
        yield folded(side.ranks), f"for {whose}, at most {left[side.value]} s more"


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
    if frame.health == "hung":
        yield HANGS
    if len(ranks) == 1:
        yield f"only {folded(ranks)} is asked: nothing to compare with"
