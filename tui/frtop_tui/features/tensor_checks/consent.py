"""What a person reads before ranks record more: what it costs, replaces and cannot show.

The figures are those of `python -m bench tensor_checks` and `mark_cost`, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from frtop_probe.features.tensor_checks.messages import NumbersOrder, NumberState
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.tensor_checks.orders import JobNumbers
from frtop_tui.job.job_activity import moved_ns
from frtop_tui.job.naming import folded, job_title
from frtop_tui.job.rank_sides import sides_of
from frtop_tui.job.units import duration

COPY_MS: Final = 1.0
"""Per MiB, in the training thread: the copy. The buffer's pages are allocated at first use."""
COUNT_MS: Final = 1.5
"""Per MiB, in a thread of its own with low priority: sums, counts and the checksum."""
BUFFER_MIB: Final = 64
PHASE_US: Final = 4
SITE_US: Final = 0.9
"""Per op, on the host."""
MODULES: Final = "1 us a call of a module and 3 us an op, on the host"

LONGER: Final = (
    "the last 65,536 ops instead of 8,192, for 5.8 MB of shared memory more (a small ring: 8,192"
    " instead of 512, 0.7 MB), until the rank ends; a look at statistics then costs the agent up to"
    " 0.1 s of a core"
)
"""As in `ring.layout`; no op takes longer."""


def number_costs(order: NumbersOrder) -> Iterator[str]:
    """What sampling costs each rank."""
    if order.ops:
        sides = "inputs and results" if order.inputs else "results"
        every = "every op" if order.every == 1 else f"every {order.every}th op"
        yield f"{every}, {sides}: up to {order.ops:,} ops, for at most {order.seconds} s"
    if order.steps:
        yield (
            f"gradients and parameters at {order.steps:,} steps of optimizers, 32 MiB of each at a"
            " step"
        )
    yield (
        f"the training thread waits for a copy: about {COPY_MS:.0f} ms a MiB and 0.3 ms a sample,"
        f" more for the first {BUFFER_MIB} MiB"
    )
    yield (
        f"a low-priority thread counts: about {COUNT_MS:.1f} ms of a core a MiB, some of it"
        f" with the GIL; {BUFFER_MIB} MiB of memory"
    )
    yield "tensors of sampled ops are kept until a wait for them ends; it never waits for a device"


QUIET_S: Final = 10.0
"""If no rank has issued an op for this long, there may be nothing to sample."""
NOTHING_NEW: Final = (
    ": while no op is issued, there is nothing to sample; `frtop tensors --rank N --members`"
    " compares what is pending"
)


def asked_words(frame: Frame, ranks: Sequence[int]) -> str:
    """`ranks 0-3 of train.py`."""
    return folded(ranks) + (f" of {job_title(frame.job)}" if frame.job is not None else "")


def other_watches(found: JobNumbers, ranks: Sequence[int]) -> Mapping[int, NumberState]:
    """Which of these ranks sample now, as far as they have answered."""
    said = {rank: one.recorded for rank, one in found.controls.items()}
    known = {rank: NumberState.of(one) for rank in ranks if (one := said.get(rank)) is not None}
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
    """What speaks against sampling these ranks now; `found` is what they record."""
    for who, words in watch_words(other_watches(found, ranks)):
        verb = "samples" if who.startswith("rank ") else "sample"
        yield f"{who} {verb} already, {words}: that would end, and whoever started it sees why"
    quiet_s = _quiet_s(frame, ranks)
    if frame.health == "hung":
        yield f"the job hangs{NOTHING_NEW}"
    elif quiet_s > QUIET_S:
        yield f"no op was issued for {duration(quiet_s)}{NOTHING_NEW}"
    if len(ranks) == 1:
        yield f"only {folded(ranks)} is asked: nothing to compare with"


def _quiet_s(frame: Frame, ranks: Sequence[int]) -> float:
    """Seconds since the last op or step of these ranks; 0.0 if not known."""
    views = [frame.ranks[rank] for rank in ranks if rank in frame.ranks]
    last = max((moved_ns(view, view.clock_ns) for view in views), default=0)
    return (frame.now_ns - last) / 1e9 if last else 0.0
