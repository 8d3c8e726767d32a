"""What ranks record now, and what changing it costs."""

from __future__ import annotations

from collections.abc import Iterator

from frtop_probe.features.tensor_checks.messages import NumberState
from frtop_probe.wire.recording import RecordedNow
from frtop_tui.features.tensor_checks.consent import MODULES, PHASE_US, SITE_US
from frtop_tui.features.tensor_checks.orders import JobNumbers
from frtop_tui.job.naming import folded
from frtop_tui.job.rank_sides import sides_of
from frtop_tui.job.units import byte_size
from frtop_tui.text.lines import WordLine


def record_words(found: JobNumbers) -> Iterator[WordLine]:
    """What is on, and in which ranks; then which ranks could not be asked."""
    known = {rank: one.recorded for rank, one in found.controls.items() if one.recorded is not None}
    newest = {rank: NumberState.of(one) for rank, one in known.items()} | dict(found.states)
    numbers = {rank: _numbers(one) for rank, one in newest.items()} | dict(found.gone)
    yield from _sides("numbers", numbers)
    no_lines = "off: ops name no line, and usual waits are not known"
    switches = (
        ("phases", "phases", f"{PHASE_US} us each on the host", "off"),
        ("sites", "call sites", f"up to {SITE_US} us an op", no_lines),
        ("modules", "modules", MODULES, "off"),
    )
    for name, subject, cost, off in switches:
        words = {True: f"on: {cost}", False: off}
        sides = {rank: words[bool(one.settings.get(name))] for rank, one in known.items()}
        yield from _sides(subject, sides)
    yield from _sides("ring", {rank: _ring(one) for rank, one in known.items()})
    due = [rank for rank, one in found.controls.items() if one.due]
    if due:
        yield WordLine("", f"{folded(due)}: no answer yet", "warn")
    problems = {rank: one.problem for rank, one in found.controls.items() if one.problem}
    for side in sides_of({**found.problems, **problems}.items()):
        yield WordLine("", f"{folded(side.ranks)}: {side.value}", "warn")


def _ring(one: RecordedNow) -> str:
    text = f"the last {one.slots:,} ops, {byte_size(one.ring_bytes)}"
    if one.slots >= one.longer_slots:
        return text
    return f"{text}; up to {one.longer_slots:,} ops for {byte_size(one.longer_bytes)} more"


def _sides(subject: str, values: dict[int, str]) -> Iterator[WordLine]:
    sides = sides_of(values.items())
    for side in sides:
        who = "" if len(sides) == 1 else f" ({folded(side.ranks)})"
        yield WordLine(subject, side.value + who)


def _numbers(state: NumberState) -> str:
    if not state.every:
        return f"off: {state.failure}" if state.failure else "off"
    left = [f"{state.ops_left:,} ops"] if state.ops_left else []
    left += [f"{state.steps_left:,} steps"] if state.steps_left else []
    more = f", {' and '.join(left)} left" if left else ""
    every = "every op" if state.every == 1 else f"every {state.every}th op"
    by = f", for {state.by}" if state.by else ""
    return f"on, {every}{more}; at most {state.seconds_left} s{by}"
