"""Whether two views of one rank differ in more than counters."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter, is_
from typing import Final

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


def _equal(
    one: wire.RankStatus | wire.Process | None,
    other: wire.RankStatus | wire.Process | None,
    facts: attrgetter[tuple[object, ...]],
) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or facts(one) == facts(other)


def _all_but_counters(names: Iterable[str], *omitted: str) -> attrgetter[tuple[object, ...]]:
    return attrgetter(*(name for name in names if name not in _COUNTERS and name not in omitted))


_rank_facts: Final = _all_but_counters(Rank.__struct_fields__, "status", "process")
_status_facts: Final = _all_but_counters(wire.RankStatus.__struct_fields__)
_process_facts: Final = _all_but_counters(wire.Process.__struct_fields__)
