"""Whether two views of one rank differ in more than counters."""

from __future__ import annotations

from operator import attrgetter, is_
from typing import Final

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.job.model import Rank

_COUNTERS: Final = frozenset({
    "heard_ns", "beat_ns", "ops", "cpu_ns", "io_bytes", "rss", "threads", "children",
})  # fmt: skip
"""These change in every update of every rank, so nothing kept between frames may depend on
them. A beat that stops changes the rank's state."""


def only_counters_differ(one: Rank, other: Rank) -> bool:
    """Whether at most counters differ; may be False where that is so."""
    return (
        all(map(is_, _rank_facts(one), _rank_facts(other)))
        and _equal(one.status, other.status, _status_facts)
        and _equal(one.process, other.process, _process_facts)
    )


def _equal(one: object, other: object, facts: attrgetter[tuple[object, ...]]) -> bool:
    if one is other or one is None or other is None:
        return one is other
    return facts(one) == facts(other)


def _facts_of(kind: type[Struct]) -> attrgetter[tuple[object, ...]]:
    omitted = _COUNTERS | {"status", "process"}  # compared by themselves
    return attrgetter(*(name for name in kind.__struct_fields__ if name not in omitted))


_rank_facts: Final = _facts_of(Rank)
_status_facts: Final = _facts_of(wire.RankStatus)
_process_facts: Final = _facts_of(wire.Process)
