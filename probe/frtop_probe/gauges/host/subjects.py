"""What one reading brings: plain values, which cross the pipe from the child as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_SUBJECTS: Final = 192
"""Of one reading: 64 ranks, 64 GPUs, and what a host has beside them."""
MAX_GAUGES: Final = 24
MAX_TEXT: Final = 200
_HIGHEST: Final = 2**62


@dataclass(frozen=True, slots=True)
class SubjectReading:
    """One thing with its figures at one time; a figure that is not known is left out.

    Attributes:
        kind, name: as in `wire.GaugeSubject`; together they are unique.
        values: by gauge; whole numbers from 0 on, whose units are in docs/features/gauges.md.
        detail: which device it is, where the name does not say.
        problem: why there are no figures.
        pids: the ranks that use it, among those that were asked about.
    """

    kind: str
    name: str
    values: Mapping[str, int] = field(default_factory=dict)
    detail: str = ""
    problem: str = ""
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HostReading:
    """All subjects of a host at `at_ns` (monotonic clock); `notes` say what it does not offer."""

    at_ns: int = 0
    subjects: tuple[SubjectReading, ...] = ()
    notes: tuple[str, ...] = ()


def host_reading_from(data: Mapping[str, Any]) -> HostReading:
    """Reads what JSON made of a reading.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    subjects = tuple(map(_subject_from, data["subjects"][:MAX_SUBJECTS]))
    return HostReading(int(data["at_ns"]), subjects, tuple(map(_text, data["notes"][:16])))


def known(**values: int | None) -> dict[str, int]:
    """The values that are known and plausible."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and 0 <= value <= _HIGHEST
    }


def printable(text: str) -> str:
    """Without what a terminal would obey, and no longer than a name is."""
    return "".join(c if c.isprintable() else "?" for c in text)[:MAX_TEXT]


def _subject_from(data: Mapping[str, Any]) -> SubjectReading:
    values = dict(list(data["values"].items())[:MAX_GAUGES])
    if not all(type(one) is int for one in values.values()):
        raise ValueError("a gauge is no whole number")
    pids = tuple(map(int, data["pids"]))
    texts = (_text(data[name]) for name in ("kind", "name", "detail", "problem"))
    kind, name, detail, problem = texts
    return SubjectReading(kind, name, known(**values), detail, problem, pids)


def _text(value: Any) -> str:
    return printable(str(value))
