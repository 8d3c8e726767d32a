"""What one rank's view tells by itself, without the others: worked out once per change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter, is_
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_tui.diagnosis import places
from frtop_tui.diagnosis.deaths import Death, death_of
from frtop_tui.diagnosis.signatures import Place, ops_told
from frtop_tui.diagnosis.waiting import Wait, main_place, wait_of
from frtop_tui.job.groups import Identifier
from frtop_tui.job.model import RankView

_COUNTERS: Final = frozenset({
    "heard_ns", "beat_ns", "ops", "cpu_ns", "io_bytes", "rss", "threads", "children",
})  # fmt: skip
"""What moves all the time, and what nothing here is told from: a beat that stops is a posture."""


_VAGUE: Final = frozenset({"lock", "unknown"})
"""Places that a wait in C++ may look like."""


class Facts(NamedTuple):
    """Of one view. `doubtful` says that others may know better of the wait."""

    wait: Wait | None
    doubtful: bool
    reached: Mapping[Identifier, int]  # the last collective issued, by group
    pending: Mapping[Identifier, tuple[int, ...]]  # collectives, by group
    more: bool  # pending ops that were left out
    told: Mapping[Place, wire.Op]  # ops that can be compared
    death: Death | None


def facts_of(view: RankView) -> Facts:
    """All facts of one view; nothing here depends on time."""
    wait = wait_of(view)
    reached, pending = _reached(view)
    return Facts(
        wait,
        wait is not None and _is_doubtful(view, wait),
        reached,
        pending,
        view.pending_more > 0,
        ops_told(view),
        death_of(view),
    )


def tell_the_same(one: RankView, other: RankView) -> bool:
    """Whether two views of a rank differ in nothing but counters: then so do no facts.

    May say no where it is yes.
    """
    return (
        all(map(is_, _of_view(one), _of_view(other)))
        and _same(one.present, other.present, _of_present)
        and _same(one.process, other.process, _of_process)
    )


def _same(
    one: wire.Present | wire.Process | None,
    other: wire.Present | wire.Process | None,
    told: attrgetter[tuple[object, ...]],
) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or told(one) == told(other)


def _but_counters(names: tuple[str, ...], *besides: str) -> attrgetter[tuple[object, ...]]:
    return attrgetter(*(name for name in names if name not in _COUNTERS and name not in besides))


_of_view: Final = _but_counters(tuple(f.name for f in fields(RankView)), "present", "process")
_of_present: Final = _but_counters(wire.Present.__struct_fields__)
_of_process: Final = _but_counters(wire.Process.__struct_fields__)


def _is_doubtful(view: RankView, wait: Wait) -> bool:
    """Whether it may not be there any more: no sign of life, or its stack is elsewhere."""
    if view.posture == "silent":
        return True
    if view.look is None or not wait.op.sync or wait.side:
        return False
    place = main_place(view)
    return place is not None and place.sure and place.kind not in places.WAITS | _VAGUE


def _reached(
    view: RankView,
) -> tuple[dict[Identifier, int], dict[Identifier, tuple[int, ...]]]:
    reached: dict[Identifier, int] = {}
    for number, group in view.groups.items():
        front = view.fronts.get(number)
        key = (group.name, group.ranks, group.epoch)
        reached[key] = front.number if front is not None else 0
    pending: dict[Identifier, tuple[int, ...]] = {}
    for op in view.pending:
        known = None if op.p2p else view.groups.get(op.group)
        if known is None:
            continue
        key = (known.name, known.ranks, known.epoch)
        pending[key] = (*pending.get(key, ()), op.number)
        # They may be newer than the front: both are read without a lock.
        reached[key] = max(reached[key], op.number)
    return reached, pending
