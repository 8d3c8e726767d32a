"""Checks a document against the Trace Event Format, as Perfetto reads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Event = Mapping[str, Any]
FIELDS = {
    "X": ("name", "cat", "ts", "dur"),
    "M": ("name", "args"),
    "i": ("name", "ts", "s"),
    "C": ("name", "ts", "args"),
    **dict.fromkeys("stf", ("name", "cat", "ts", "id")),
}
"""What an event of each phase must have, beside `pid` and `tid`."""


def problems(document: Mapping[str, Any]) -> list[str]:
    """What is not as the format wants it; empty if all is."""
    events = document["traceEvents"]
    found = [text for event in events for text in _of_event(event)]
    return [*found, *_of_names(events), *_of_flows(events), *_of_nesting(events)]


def _of_event(event: Event) -> Iterator[str]:
    phase = event.get("ph")
    if phase not in FIELDS:
        yield f"an unknown phase: {event}"
        return
    missing = [name for name in ("pid", "tid", *FIELDS[phase]) if name not in event]
    if missing and not (phase == "i" and missing == ["cat"]):
        yield f"without {missing}: {event}"
    if not isinstance(event.get("pid"), int) or not isinstance(event.get("tid"), int | str):
        yield f"pid and tid: {event}"
    for name in {"ts", "dur"} & event.keys():
        if not isinstance(event[name], int | float) or event[name] < 0:
            yield f"{name} is not a time: {event}"
    if "id" in event and not isinstance(event["id"], int):
        yield f"an id that is no number: {event}"


def _of_names(events: Iterable[Event]) -> Iterator[str]:
    named = [event["pid"] for event in events if event["name"] == "process_name"]
    if len(named) != len(set(named)):
        yield "a process has two names"
    yield from (f"process {pid} has no name" for pid in {e["pid"] for e in events} - set(named))


def _of_flows(events: Iterable[Event]) -> Iterator[str]:
    flows: dict[Any, list[str]] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            flows[event["cat"], event["name"], event["id"]].append(event["ph"])
    for key, phases in flows.items():
        if "s" not in phases or "f" not in phases:
            yield f"a flow without a start or an end: {key} {phases}"


def _of_nesting(events: Iterable[Event]) -> Iterator[str]:
    lanes: dict[Any, list[tuple[int, int, str]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin, end = (round(1000 * at) for at in (event["ts"], event["ts"] + event["dur"]))
            lanes[event["pid"], event["tid"]].append((begin, -end, event["name"]))
    for lane, spans in lanes.items():
        open_ends: list[int] = []
        for begin, negative_end, name in sorted(spans):
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            if open_ends and -negative_end > open_ends[-1] + 1:  # ns: times have three decimals
                yield f"{name} in lane {lane} ends after what it began in"
            open_ends.append(-negative_end)
