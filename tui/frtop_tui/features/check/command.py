"""`frtop check`: reads a plan and the facts of a job, and prints what is held."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from frtop_probe import atomic_file
from frtop_tui.cli.file_options import open_files
from frtop_tui.cli.live import connected, wait_for_ranks
from frtop_tui.cli.output import for_terminal, show_progress
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, NotWritten, UsageError
from frtop_tui.features.check.expectations import Held, Outcome, compared, overall, words_of
from frtop_tui.features.check.facts import (
    FEWEST,
    NO_RECORDER,
    WARM_UP,
    JobFacts,
    facts_of,
    steps_of_file,
)
from frtop_tui.features.check.follow import ReadSteps, StepsRead
from frtop_tui.features.check.plan import Expected, Figures, joined, plan_of_words, read_plan
from frtop_tui.features.check.plan_text import left_out, plan_text
from frtop_tui.job.naming import printable
from frtop_tui.job.units import counted
from frtop_tui.text.exit_status import BROKEN, HEALTHY, UNDECIDED

FOR_A_PLAN: Final = 20
"""Steps before a plan is written: fewer say little about what varies."""
ANSWER_S: Final = 20.0
"""How long agents may take to send the steps of all ranks."""
SUFFIX: Final = ".toml"
STATUS: Final[dict[Held, int]] = {"held": HEALTHY, "broken": BROKEN, "not known": UNDECIDED}
_KEYS_AT: Final = 11
_ORDER: Final[tuple[Held, ...]] = ("broken", "not known", "held")


def run(options: argparse.Namespace) -> int:
    """Returns the status of the outcomes; of a plan that was written, whether it is complete."""
    _settle_plan(options)
    if options.write:
        return _write(options)
    plans = [read_plan(Path(options.plan))] if options.plan else []
    plan = joined([*plans, plan_of_words(options.expect)])
    if not plan.expectations:
        raise UsageError(f"{options.plan} expects nothing", "docs/features/check.md has an example")
    facts, _ = _facts(options, FEWEST if plan.needs_steps else 0)
    outcomes = compared(plan, facts)
    if options.json:
        print(json.dumps(document(outcomes, facts), indent=1))
    else:
        print("\n".join(for_terminal(lines(outcomes, facts), lambda _: _KEYS_AT)))
    return STATUS[overall(outcomes)]


def _settle_plan(options: argparse.Namespace) -> None:
    """Tells a plan from files: both may come first.

    Raises:
        UsageError: no plan and no expectation is named, or one that does not fit.
    """
    if options.plan and not options.plan.endswith(SUFFIX):
        if not options.expect or options.write:
            raise UsageError(
                f"{options.plan} is no plan: its name does not end with {SUFFIX}",
                "name the plan first, then files: frtop check plan.toml job.cap",
            )
        options.paths, options.plan = [options.plan, *options.paths], None
    if options.write and (options.expect or not options.plan):
        raise UsageError(
            "--write takes the name of a plan, and no --expect", "frtop check --write plan.toml"
        )
    if not options.plan and not options.expect:
        raise UsageError(
            "there is nothing to check",
            "frtop check --write plan.toml writes a plan from a good run, and"
            " frtop check plan.toml checks a job",
        )


def _write(options: argparse.Namespace) -> int:
    path = Path(options.plan)
    if path.exists():  # before anybody waits for a job
        raise _there(path)
    facts, frame = _facts(options, FOR_A_PLAN)
    if frame.verdicts:
        verdict = printable(frame.verdicts[0].headline)
        print(f"note: is this a good run? {verdict}", file=sys.stderr)
    try:
        atomic_file.write(path, plan_text(facts, frame.wall_ns).encode(), overwrite=False)
    except FileExistsError:
        raise _there(path) from None
    except OSError as error:
        raise NotWritten(f"{path} was not written: {error.strerror}", "name another") from None
    why = left_out(facts)
    print(printable(f"{path}: {counted(len(facts.ranks), 'rank')}{_steps_words(facts)}"))
    if why:
        print(printable(f"no steps and no ops are in it: {why}"), file=sys.stderr)
    return UNDECIDED if why else HEALTHY


def _there(path: Path) -> NotWritten:
    return NotWritten(f"{path} is already there", "edit it, remove it, or name another file")


def _facts(options: argparse.Namespace, steps: int) -> tuple[JobFacts, Frame]:
    """The facts, as soon as each rank of a live job has made so many steps; 0: without any."""
    if options.paths:
        frame = open_files(options)
        read = {rank: steps_of_file(view) for rank, view in frame.ranks.items()}
        return facts_of(frame, read), frame
    with connected(options) as source:
        end = time.monotonic() + options.wait
        frame = wait_for_ranks(source, options.wait, show_progress)
        if not steps:
            return facts_of(frame, {}), frame
        frame = _await_steps(source, WARM_UP + steps + 1, end)  # the last one may not be whole
        found = _read(source, frame)
        return facts_of(source.frame(), found.steps, found.problems), frame


def _await_steps(source: Source, needed: int, end: float) -> Frame:
    """The first frame in which all ranks have ended so many steps, or that of the `end`."""
    while True:
        frame = source.frame()
        if frame.problem is not None and frame.problem.internal:
            raise FrtopError(frame.problem.text, frame.problem.next)
        living = [
            view
            for view in frame.ranks.values()
            if view.identity.prepared and view.exit_info is None and view.state != "unreachable"
        ]
        ended = [view.status.step if view.status is not None else 0 for view in living]
        waiting = sum(one < needed for one in ended)
        if not waiting or time.monotonic() > end:
            return frame
        ranks = f"{len(ended) - waiting:,} of {counted(frame.coverage.expected, 'rank')}"
        left = max(0.0, end - time.monotonic())
        slowest = min(ended)
        show_progress(
            f"{ranks} have ended {needed} steps, the slowest {slowest}; {left:.0f} s left at most"
        )
        time.sleep(0.1)


def _read(source: Source, frame: Frame) -> StepsRead:
    """The steps of all ranks, as far as agents sent them in time."""
    order = ReadSteps(tuple(sorted(frame.ranks)))
    source.do(order)
    end = time.monotonic() + ANSWER_S
    while True:
        found: StepsRead = source.news()["check"]
        if found.order is order and not found.left:
            return found
        if time.monotonic() > end:
            late = "no answer from its agent in time"
            known = found.steps.keys() | found.problems.keys()
            problems = {rank: late for rank in order.ranks if rank not in known}
            return StepsRead(found.steps, {**found.problems, **problems})
        done = len(order.ranks) - found.left if found.order is order else 0
        show_progress(f"reading steps of {done:,} of {counted(len(order.ranks), 'rank')}")
        time.sleep(0.02)


def lines(outcomes: Sequence[Outcome], facts: JobFacts) -> list[str]:
    """One line for each expectation, what is broken first, then a summary."""
    found = sorted(outcomes, key=lambda one: _ORDER.index(one.result))
    rows = [f"{one.result:<{_KEYS_AT}}{one.expectation.key}: {_words(one)}" for one in found]
    counts = [(sum(one.result == result for one in outcomes), result) for result in _ORDER]
    said = ", ".join(f"{count:,} {result}" for count, result in counts if count)
    total = counted(len(outcomes), "expectation")
    rows.append(f"{total}: {said} ({counted(len(facts.ranks), 'rank')}{_steps_words(facts)})")
    if any(one.result == "broken" and one.expectation.path[0] == "ops" for one in outcomes):
        rows.append("  next: `frtop statistics` shows the lines that issue these ops")
    if NO_RECORDER in facts.unknown.values():
        rows.append("  next: start the job with `frtop run -- ...`: it records steps and settings")
    return [printable(row) for row in rows]


def _words(one: Outcome) -> str:
    expected = words_of(one.expectation.path[-1], one.expectation.value)
    if one.result == "held":
        return one.found
    if one.result == "broken":
        return f"expected {expected}, found {one.found}"
    return f"expected {expected}, {one.why}"


def _steps_words(facts: JobFacts) -> str:
    """`, steps 12 to 31`."""
    numbers = [step.number for steps in facts.steps.values() for step in steps]
    return f", steps {min(numbers):,} to {max(numbers):,}" if numbers else ""


def document(outcomes: Sequence[Outcome], facts: JobFacts) -> dict[str, Any]:
    """The same as JSON; keys are only ever added."""
    result = overall(outcomes)
    return {
        "schema": "frtop-check-1",
        "result": result,
        "exit_status": STATUS[result],
        "ranks": len(facts.ranks),
        "ranks_with_steps": len(facts.steps),
        "expectations": [
            {
                "key": one.expectation.key,
                "result": one.result,
                "value": _plain(one.expectation.value),
                "expected": words_of(one.expectation.path[-1], one.expectation.value),
                "found": one.found,
                "why": one.why,
                "ranks": list(one.ranks),
            }
            for one in outcomes
        ],
    }


def _plain(value: Expected) -> str | bool | list[float] | list[str]:
    """An expected value for programs: a range has its least and its most."""
    if isinstance(value, Figures):
        return [value.least, value.most]
    return sorted(value) if isinstance(value, frozenset) else value
