"""Whether two views of one rank tell the same, but for what moves all the time."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter, is_
from typing import Final

from frtop_probe import wire
from frtop_tui.job.model import Rank

_COUNTERS: Final = frozenset({
    "heard_ns", "beat_ns", "ops", "cpu_ns", "io_bytes", "rss", "threads", "children",
})  # fmt: skip
"""Nothing that is kept between frames may be told from these: of no rank they stand still.

What is worked out anew in every frame, as progress is, may. A beat that stops is a posture.
"""


def same_facts(one: Rank, other: Rank) -> bool:
    """Whether nothing but counters differs; may say no where it is yes."""
    return (
        all(map(is_, _of_view(one), _of_view(other)))
        and _same(one.status, other.status, _of_present)
        and _same(one.process, other.process, _of_process)
    )


def _same(
    one: wire.RankStatus | wire.Process | None,
    other: wire.RankStatus | wire.Process | None,
    told: attrgetter[tuple[object, ...]],
) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or told(one) == told(other)


def _all_but_counters(names: Iterable[str], *besides: str) -> attrgetter[tuple[object, ...]]:
    return attrgetter(*(name for name in names if name not in _COUNTERS and name not in besides))


_of_view: Final = _all_but_counters(Rank.__struct_fields__, "status", "process")
_of_present: Final = _all_but_counters(wire.RankStatus.__struct_fields__)
_of_process: Final = _all_but_counters(wire.Process.__struct_fields__)
