"""A Flight Recorder's ring as a table, for the way from the child to its parent.

Thousands of entries have the same group, shapes and line. Here each is written once, so that an
answer is small, and the parent has each text once in memory.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from frtop_probe.unprepared.model import FlightRing, RingEntry

_SHARED: Final = (
    "group", "description", "op", "inputs", "outputs", "input_types", "output_types", "thread",
    "site", "thread_ident",
)  # fmt: skip
_OWN: Final = (
    "id", "number", "p2p_number", "op_id", "is_p2p", "created_ns", "started_ns", "completed_ns",
    "timeout_ms", "retired",
)  # fmt: skip
_shared_of: Final = attrgetter(*_SHARED)
_own_of: Final = attrgetter(*_OWN)


def table_of(ring: FlightRing) -> dict[str, Any]:
    """A ring in values that JSON has."""
    places: dict[tuple[Any, ...], int] = {}
    rows = []
    for entry in ring.entries:
        place = places.setdefault(_shared_of(entry), len(places))
        rows.append((place, *_own_of(entry)))
    return {
        "kind": ring.kind,
        "capacity": ring.capacity,
        "recorded": ring.recorded,
        "torn": ring.torn,
        "reason": ring.reason,
        "shared": list(places),
        "rows": rows,
    }


def ring_from(data: dict[str, Any]) -> FlightRing:
    """Reads what `table_of` made, as JSON brings it.

    Raises:
        TypeError: a value is missing, or too many.
        KeyError: a column is missing.
        IndexError: a row is of nothing.
        ValueError: a row or a shared part is too short.
    """
    shared = [dict(zip(_SHARED, map(_frozen, one), strict=True)) for one in data["shared"]]
    entries = tuple(
        RingEntry(**shared[place], **dict(zip(_OWN, own, strict=True)))
        for place, *own in data["rows"]
    )
    return FlightRing(
        data["kind"], data["capacity"], data["recorded"], entries, data["torn"], data["reason"]
    )


def _frozen(value: Any) -> Any:
    """The value with tuples in place of lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
