"""`frtop numbers`: samples values in ops and steps, and compares them between ranks."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from frtop_probe import wire
from frtop_tui.cli.live import agrees, can_ask, connect, show_progress, wait_for_ranks
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import folded, group_label, listed, printable
from frtop_tui.job.stack_frames import site_line
from frtop_tui.numbers.costs import number_costs
from frtop_tui.numbers.figure_words import figure_words
from frtop_tui.numbers.finding_words import finding_words
from frtop_tui.numbers.orders import JobNumbers, RecordOrder
from frtop_tui.sources.base import Source

APPEAR_S: Final = 8.0
ANSWER_S: Final = 10.0
REST_S: Final = 3.0
"""After the watch has ended, for the last samples."""
DIFFERENT: Final = 3


def run(options: argparse.Namespace) -> int:
    """Returns 3 if something differs or has NaN, 0 if not, 1 if that cannot be said.

    It cannot where no sample has figures, or a rank could not be asked to the end.
    """
    source = connect(options)
    try:
        frame = wait_for_ranks(source, APPEAR_S, show_progress)
        show_progress("")
        order = _order(options, frame)
        if order.numbers is not None and (order.numbers.ops or order.numbers.steps):
            _agree(options, order)
        source.record(order)
        found = _await_end(source, order, options)
    except KeyboardInterrupt:
        stop = wire.NumbersOrder(1, 0, 0, False)
        source.record(RecordOrder(tuple(source.numbers().states), stop))
        found = _await_answers(source)
    finally:
        show_progress("")
        source.close()
    print(
        _document(found)
        if options.json
        else "\n".join(lines(found, by_group=options.by == "group"))
    )
    if found.found.any_fault:
        return DIFFERENT
    unread = sum(one.skipped for one in found.states.values())
    complete = found.samples > unread and not found.problems
    return 0 if complete or options.stop else 1


def _order(options: argparse.Namespace, frame: Frame) -> RecordOrder:
    group = _group(options.group, frame) if options.group else None
    members = group.members if group is not None else tuple(sorted(frame.ranks))
    ranks = tuple(options.rank) if options.rank else members
    if strange := sorted(set(ranks) - frame.ranks.keys()):
        raise UsageError(f"the job has no rank {strange[0]}", "`frtop jobs` lists its ranks")
    if not ranks:
        raise FrtopError("no rank is heard", "`frtop diagnose` says which hosts are")
    ops = 0 if options.stop else options.ops
    steps = 0 if options.stop else options.steps
    wanted = wire.NumbersOrder(
        options.every, ops, options.seconds, not options.no_inputs, (), steps
    )
    key: Identifier | None = identifier(group.key) if group is not None else None
    return RecordOrder(ranks, wanted, key)


def _group(name: str, frame: Frame) -> GroupView:
    called = [
        one
        for one in frame.groups
        if name in (one.key.name, group_label(one.key.name, one.description))
    ]
    if len(called) != 1:
        there = sorted({group_label(one.key.name, one.description) for one in frame.groups})
        why = f"no group is called {name!r}" if not called else f"several are called {name!r}"
        raise UsageError(why, f"there is {listed(there)}; --rank names ranks")
    return called[0]


def _agree(options: argparse.Namespace, order: RecordOrder) -> None:
    assert order.numbers is not None
    print(f"asks {folded(order.ranks)} to sample, which costs each of them:", file=sys.stderr)
    for line in number_costs(order.numbers):
        print(f"  {line}", file=sys.stderr)
    if options.yes:
        return
    if not can_ask():
        raise UsageError(
            "ranks sample only when a person says so, and this is no terminal",
            "read the cost above, then add --yes",
        )
    if not agrees("Sample now?"):
        raise FrtopError("nothing was asked", "answer y, or add --yes")


def _await_end(source: Source, order: RecordOrder, options: argparse.Namespace) -> JobNumbers:
    """The samples once the watch is over, or at its first finding with `--until-found`."""
    found = _await_answers(source)
    begin = time.monotonic()
    while found.runs and time.monotonic() - begin < options.seconds + ANSWER_S:
        show_progress(f"{found.samples:,} samples of {len(order.ranks):,} ranks")
        time.sleep(0.1)
        found = source.numbers()
        if options.first and found.found.decided_fault:
            source.record(RecordOrder(order.ranks, wire.NumbersOrder(1, 0, 0, False)))
            break
    end = time.monotonic() + REST_S
    while time.monotonic() < end and (
        source.numbers().samples < sum(one.samples for one in found.states.values())
    ):
        time.sleep(0.1)
    time.sleep(0.6)  # the comparison of the last ones
    return source.numbers()


def _await_answers(source: Source) -> JobNumbers:
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end:
        found = source.numbers()
        if found.controls and not any(one.due for one in found.controls.values()):
            break
        show_progress("asking ranks")
        time.sleep(0.05)
    return source.numbers()


def lines(found: JobNumbers, *, by_group: bool = False) -> list[str]:
    """What was found, and what could not be seen; on request the figures of each group."""
    said = [*finding_words(found.found, found.names, site_line)]
    if by_group:
        said += figure_words(found.found, found.names)
    rows = [f"  {one.subject:<12}  {one.text}" for one in said]
    return [printable(row) for row in (*_head(found), *rows)]


def _head(found: JobNumbers) -> Iterator[str]:
    yield f"{found.samples:,} samples of {len(found.states):,} ranks"
    if found.lost:
        yield f"{found.lost:,} samples were overwritten before they were asked for: sample fewer"
    if unseen := sum(one.unseen for one in found.states.values()):
        yield f"{unseen:,} results were not read: nobody was seen to wait for the ops"
    if thinned := sum(one.thinned for one in found.states.values()):
        yield f"{thinned:,} ops were not sampled, as ranks had no time to count them: --every"
    if skipped := sum(one.skipped for one in found.states.values()):
        reasons: Counter[str] = sum((one.unread for one in found.found.figures), Counter())
        why = "; ".join(text for text, _ in reasons.most_common(2))
        yield f"{skipped:,} samples have no figures: {why or 'the reason is lost'}"
    problems = {rank: one.problem for rank, one in found.controls.items() if one.problem}
    for rank, text in sorted({**found.problems, **problems}.items())[:8]:
        yield f"rank {rank}: {text}"
    failures = {one.failure for one in found.states.values() if one.failure}
    for text in sorted(failures)[:2]:
        yield f"a watch ended by an error of its own, please report it: {text}"


def _document(found: JobNumbers) -> str:
    document = {
        "samples": found.samples,
        "lost": found.lost,
        "states": {str(rank): state for rank, state in found.states.items()},
        "problems": {str(rank): text for rank, text in found.problems.items()},
        "findings": found.found,
    }
    named = {"equal_ops": {found.names.label(k): n for k, n in found.found.equal_ops.items()}}
    findings = {**msgspec.to_builtins(found.found, str_keys=False), **named}
    return msgspec.json.format(
        msgspec.json.encode({**document, "findings": findings}), indent=1
    ).decode()
