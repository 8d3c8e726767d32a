"""What a profile costs, how far it is, and its outcome, in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Final

from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.profile.model import (
    OPTION_COSTS,
    ProfileOptions,
    ProfileProgress,
    RankProfile,
    cost_lines,
)
from frtop_tui.features.profile.script_merge import ScriptMerge
from frtop_tui.job.naming import folded, typed
from frtop_tui.job.units import byte_size, counted, duration, timing, timings

_HELD: Final = ("silent", "stopped")
"""States of ranks that reach no step, even if no rank waits for them."""

STAGES: Final = {
    "ordered": "asked",
    "waiting": "waiting for a step",
    "warming": "warming up",
    "running": "recording",
    "saving": "writing",
    "fetching": "fetching",
    "done": "done",
    "failed": "not profiled",
}
OPTION_NAMES: Final = {
    "shapes": "shapes of inputs",
    "stacks": "stacks of Python",
    "memory": "torch's allocator",
    "execution": "execution trace, for Chakra",
}
_OVER: Final = ("done", "failed")


def consent_lines(options: ProfileOptions) -> Iterator[str]:
    """What an order costs the ranks, its options included."""
    yield from cost_lines(options)
    for name, cost in OPTION_COSTS.items():
        if getattr(options, name):
            yield f"{OPTION_NAMES[name]}: {cost}."


def standing_text(frame: Frame, ranks: Collection[int], options: ProfileOptions) -> str:
    """Says which of these ranks seem unable to reach a next step; "" if all may.

    A wait proves nothing: each step has some. A verdict names the rank, or something holds it.
    """
    named = {
        rank
        for verdict in frame.verdicts
        if verdict.kind != "slow" and verdict.progress != "active"
        for rank in (*verdict.culprits, *verdict.victims, *chain(*verdict.parties))
    }
    views = [frame.ranks[rank] for rank in ranks if rank in frame.ranks]
    standing = [view for view in views if view.state in _HELD or _waits(view, named)]
    if not standing:
        return ""
    several = len(standing) > 1
    seconds = max(view.state_age_s(frame.now_ns) or 0.0 for view in standing)
    who = folded(view.rank for view in standing).capitalize()
    verb = "stand still, for up to" if several else "stands still, for"
    begin = "the next step" if options.steps else "the next step or op"
    begin = f"step {options.at_step}" if options.at_step else begin
    return (
        f"{who} {verb} {duration(seconds)}: the profiler starts at {begin} only."
        f" Without it in {options.wait_s:g} s the order ends, and nothing is recorded there."
    )


def _waits(view: JudgedRank, named: Collection[int]) -> bool:
    return view.rank in named and view.state in ("blocked", "late")


def progress_text(progress: ProfileProgress) -> str:
    """One line: how many ranks are at which stage."""
    if progress.state == "merging":
        return "merging the traces"
    stages = Counter[str](rank.stage for rank in progress.ranks)
    parts = [f"{stages[name]} {text}" for name, text in STAGES.items() if stages[name]]
    done = sum(rank.done for rank in progress.ranks)
    more = f", {byte_size(done)} fetched" if done else ""
    held_up = next((one for one in progress.ranks if one.text and one.stage not in _OVER), None)
    why = f"; rank {held_up.rank}: {held_up.text}" if held_up is not None else ""
    return f"{counted(len(progress.ranks), 'rank')}: {', '.join(parts)}{more}{why}"


def rank_text(rank: RankProfile) -> str:
    parts = [STAGES[rank.stage]]
    if rank.last >= rank.first > 0:
        parts.append(
            f"step {rank.first}" if rank.first == rank.last else f"steps {rank.first}-{rank.last}"
        )
    if rank.lasted_ns:
        parts.append(duration(rank.lasted_ns / 1e9))
    if rank.total:
        fetched = f"{byte_size(rank.done)} of " if rank.done < rank.total else ""
        parts.append(f"{fetched}{byte_size(rank.total)}")
    if rank.stood_still_ns:
        parts.append(f"stood still for {timing(rank.stood_still_ns)}")
    if rank.text:
        parts.append(rank.text)
    return ", ".join(parts)


def result_lines(progress: ProfileProgress) -> Iterator[str]:
    """What was written and what was not; ranks with the same outcome share a line."""
    if progress.state == "written":
        done = [rank for rank in progress.ranks if rank.stage == "done"]
        longest = timing(max((rank.stood_still_ns for rank in done), default=0))
        size = byte_size(progress.size)
        yield (
            f"{folded(rank.rank for rank in done)}: {size} in {progress.path}; a rank stood still "
            f"for {longest} at most"
        )
        if progress.options.execution and not progress.options.separate:
            yield "the execution trace of each rank lies beside it: *.execution.json"
        if progress.has_modules:
            yield f"ops and times by module: `frtop statistics --by module {typed(progress.path)}`"
    reasons = defaultdict(list)
    for rank in progress.ranks:
        if rank.text and (rank.stage == "failed" or progress.state == "written"):
            reasons[rank.text].append(rank.rank)
    for text, ranks in reasons.items():
        yield f"{folded(ranks)}: {text}"
    if progress.state != "written" and progress.problem is not None:
        yield str(progress.problem)


def merge_lines(merge: ScriptMerge, size: int) -> Iterator[str]:
    """What was merged, how well the clocks are aligned, and what is missing."""
    yield f"{folded(merge.traces)}: {byte_size(size)}"
    others = {rank: one for rank, one in merge.clocks.items() if one.neighbour is not None}
    if others:
        likely = max(one.error_estimated for one in others.values())
        bounds = [one.error_at_most for one in others.values()]
        most = None if None in bounds else max(filter(None, bounds), default=0)
        limit = "and they contradict each other" if most is None else f"{timing(most)} at most"
        yield (
            f"clocks of {folded(merge.clocks)} are aligned by ends of collectives: the error is"
            f" about {timing(likely)}, {limit}"
        )
    moved = {rank: abs(one.shift) for rank, one in others.items() if one.shift}
    if moved:
        by = timings(min(moved.values()), max(moved.values()))
        yield f"{folded(moved)}: drawn {by} away from what the clock says"
    if merge.not_aligned and len(merge.traces) > 1:
        yield (
            f"{folded(merge.not_aligned)}: not aligned: no collective tells by how much the clock"
            " is off; drawn by the host's wall clock"
        )
    yield from merge.missing
