"""`frtop numbers`: samples values in ops and steps, and compares them between ranks."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from frtop_probe.features.tensor_checks.messages import NumbersOrder, NumberState
from frtop_tui.cli.live import agrees, can_ask, connected, wait_for_ranks
from frtop_tui.cli.output import for_terminal, show_progress
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.features.tensor_checks.consent import (
    asked_words,
    number_costs,
    other_watches,
    warnings,
    watch_words,
)
from frtop_tui.features.tensor_checks.finding_words import figure_words, finding_words
from frtop_tui.features.tensor_checks.orders import (
    NO_NUMBERS,
    NOTHING,
    JobNumbers,
    RankControl,
    RecordOrder,
)
from frtop_tui.features.tensor_checks.rank_orders import RankOrders, problem_lines
from frtop_tui.features.tensor_checks.rows import ordered, row_lines, row_of
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import folded, listed, printable
from frtop_tui.job.stack_frames import site_line
from frtop_tui.text.lines import labelled

APPEAR_S: Final = 8.0
REST_S: Final = 3.0
"""For the last samples, after the watch has ended."""
COMPARISON_S: Final = 0.6
END_S: Final = 5.0
"""How long ranks may take to confirm that they have stopped."""
OVERDUE_S: Final = 10.0
"""How long to wait for ranks beyond their time."""
DIFFERENT: Final = 3
MOST_PROBLEMS: Final = 8
SUBJECT: Final = 12
"""Columns of the subject of a finding."""
FIRST: Final = "the first finding"
GONE: Final = "a rank stopped sampling"
INTERRUPTED: Final = "Ctrl-C"
NO_ANSWER: Final = RankControl(due=True)


def run(options: argparse.Namespace) -> int:
    """Returns 3 if something differs or has NaN, 0 if not, 1 if that is not known.

    It is not known if no sample has figures, or a rank could not be asked until the end.
    """
    with connected(options) as source:
        frame = wait_for_ranks(source, APPEAR_S, show_progress)
        show_progress("")
        order = _order(options, frame)
        orders = RankOrders(source, frame)
        before = orders.send(RecordOrder(order.ranks))
        show_progress("")
        able = _able(order.ranks, before)
        if options.stop:
            return _stop(orders, other_watches(before, able), options)
        order = replace(order, ranks=able)
        _agree(options, frame, order, before)
        found, until = _sample(source, orders, order, options)
    if options.json:
        print(_document(found, until, options.rows))
    else:
        said = lines(found, until=until, by_group=options.by == "group", rows=options.rows)
        print("\n".join(for_terminal(said, _indent)))
    if found.found.any_fault:
        return DIFFERENT
    unread = sum(one.skipped for one in found.states.values())
    complete = found.samples > unread and not _problems(found) and until in ("", FIRST)
    return 0 if complete else 1


def _order(options: argparse.Namespace, frame: Frame) -> RecordOrder:
    group = _group(options.group, frame) if options.group else None
    members = group.members if group is not None else tuple(sorted(frame.ranks))
    ranks = ranks_to_ask(frame, options.rank or members)
    ops = 0 if options.stop else options.ops
    steps = 0 if options.stop else options.steps
    wanted = NumbersOrder(options.every, ops, options.seconds, not options.no_inputs, (), steps)
    if not (options.stop or ops or steps):
        raise UsageError("with no ops and no steps there is nothing to sample", "--ops, --steps")
    key: Identifier | None = identifier(group.key) if group is not None else None
    return RecordOrder(ranks, wanted, key)


def ranks_to_ask(frame: Frame, wanted: Iterable[int]) -> tuple[int, ...]:
    """The wanted ranks.

    Raises:
        FrtopError: one of them is unknown, or there is none.
    """
    ranks = tuple(sorted(wanted))
    if strange := sorted(set(ranks) - frame.ranks.keys()):
        raise UsageError(f"the job has no rank {strange[0]}", "`frtop jobs` lists its ranks")
    if not ranks:
        raise FrtopError("no rank is reporting", "`frtop diagnose` says which hosts are")
    return ranks


def _group(name: str, frame: Frame) -> GroupView:
    called = [one for one in frame.groups if name in (one.key.name, one.label)]
    if len(called) != 1:
        there = sorted({one.label for one in frame.groups})
        why = f"no group is called {name!r}" if not called else f"several are called {name!r}"
        raise UsageError(why, f"there is {listed(there)}; --rank names ranks")
    return called[0]


def _able(ranks: Sequence[int], before: JobNumbers) -> tuple[int, ...]:
    """The ranks that can be asked; prints why the others cannot.

    Raises:
        FrtopError: none can.
    """
    controls = {rank: before.controls.get(rank, NO_ANSWER) for rank in ranks}
    problems = {
        rank: one.problem or "no answer yet"
        for rank, one in controls.items()
        if one.problem or one.recorded is None
    }
    said = problem_lines(problems)
    if len(problems) == len(ranks):
        raise FrtopError(
            f"no rank can be asked: {'; '.join(said[:MOST_PROBLEMS])}",
            "`frtop diagnose` says what is known of them without asking",
        )
    for line in said:
        print(printable(f"not asked: {line}"), file=sys.stderr)
    return tuple(rank for rank in ranks if rank not in problems)


def _stop(
    orders: RankOrders, running: Mapping[int, NumberState], options: argparse.Namespace
) -> int:
    """Stops all sampling, whoever started it; returns 1 if a rank could not be asked."""
    after = orders.send(RecordOrder(tuple(running), NOTHING), END_S) if running else NO_NUMBERS
    show_progress("")
    failed = {rank: text for rank in running if (text := _not_ended(after, rank))}
    stopped = {rank: state for rank, state in running.items() if rank not in failed}
    if options.json:
        document = {
            "schema": "frtop-numbers-stopped-1",
            "stopped": {str(rank): state for rank, state in stopped.items()},
            "problems": {str(rank): text for rank, text in failed.items()},
        }
        print(json_text(document))
    else:
        said = [
            f"{who}: stopped what was sampled {words}" for who, words in watch_words(stopped)
        ] + problem_lines(failed)
        print("\n".join(map(printable, said or ["no rank samples: nothing to stop"])))
    return 1 if failed else 0


def _not_ended(after: JobNumbers, rank: int) -> str:
    """Why it is not known whether a rank has stopped; "" if it has."""
    control = after.controls.get(rank, NO_ANSWER)
    if control.problem:
        return control.problem
    return "no answer: it samples until its time is over" if control.due else ""


def _agree(
    options: argparse.Namespace, frame: Frame, order: RecordOrder, before: JobNumbers
) -> None:
    assert order.numbers is not None
    who = asked_words(frame, order.ranks)
    print(printable(f"asks {who} to sample, which costs each of them:"), file=sys.stderr)
    for line in number_costs(order.numbers):
        print(f"  {line}", file=sys.stderr)
    for line in warnings(frame, before, order.ranks):
        print(printable(f"note: {line}"), file=sys.stderr)
    if options.yes:
        return
    if not can_ask():
        raise UsageError(
            "ranks sample only if a person agrees, and this is not a terminal",
            "read the cost above, then add --yes",
        )
    replaces = "Replace it and sample now?" if other_watches(before, order.ranks) else "Sample now?"
    if not agrees(replaces):
        raise FrtopError("nothing was asked", "answer y, or add --yes")


def _sample(
    source: Source, orders: RankOrders, order: RecordOrder, options: argparse.Namespace
) -> tuple[JobNumbers, str]:
    """The samples, and what ended the watch early; "" if nothing did."""
    try:
        orders.send(order)
        until = _await_end(source, order, options)
    except KeyboardInterrupt:
        until = INTERRUPTED
        show_progress("stopping all ranks; Ctrl-C again quits without waiting for them")
        orders.wait(END_S)  # else the order to stop could overtake the order to start
    if _numbers(source).runs:
        after = orders.send(RecordOrder(order.ranks, NOTHING, own=True), END_S)
        failed = {
            rank: text
            for rank in order.ranks
            if rank not in after.gone and (text := _not_ended(after, rank))
        }
        show_progress("")
        for line in problem_lines(failed):
            print(printable(f"not ended: {line}; `frtop numbers --stop`"), file=sys.stderr)
    end = time.monotonic() + REST_S
    while time.monotonic() < end and _numbers(source).unfetched:
        time.sleep(0.1)
    time.sleep(COMPARISON_S)
    return _numbers(source), until


def _await_end(source: Source, order: RecordOrder, options: argparse.Namespace) -> str:
    """What ended the watch early: a rank that stopped, or with `--first` a finding."""
    end = time.monotonic() + options.seconds + OVERDUE_S
    while (found := _numbers(source)).runs and time.monotonic() < end:
        if options.first and found.found.decided_fault:
            return FIRST
        if found.gone:
            return GONE
        left = max((one.seconds_left for one in found.states.values()), default=0)
        ranks = f"{found.samples:,} samples of {len(order.ranks):,} ranks"
        silent = f"; no answer from {folded(found.problems)}" if found.problems else ""
        show_progress(f"{ranks}, {left} s left at most; Ctrl-C ends it{silent}")
        time.sleep(0.1)
    return GONE if found.gone else ""


def _problems(found: JobNumbers) -> dict[int, str]:
    """Why ranks could not be asked until the end."""
    controls = {rank: one.problem for rank, one in found.controls.items() if one.problem}
    return {**found.problems, **controls, **found.gone}


def lines(
    found: JobNumbers, *, until: str = "", by_group: bool = False, rows: int | None = None
) -> list[str]:
    """Findings, and what could not be seen; with `by_group` also the figures of each group.

    The first `rows` samples come before them.
    """
    said = [*finding_words(found.found, found.names, site_line, found.places)]
    if by_group:
        said += figure_words(found.found, found.names)
    samples = [*row_lines(found.taken, found.names, rows), ""] if rows else ()
    parts = (*samples, *_head(found, until), *labelled(said, SUBJECT, "  "))
    return [printable(line) for line in parts]


def _indent(row: str) -> int:
    return SUBJECT + 4 if row.startswith("  ") else 2


def _head(found: JobNumbers, until: str) -> Iterator[str]:
    early = f", until {until}" if until else ""
    ranks = len(found.states)
    yield f"{found.samples:,} samples of {ranks:,} rank{'s' * (ranks != 1)}{early}"
    if not found.samples and not found.gone:
        yield "nothing to sample was issued: no op, no optimizer step"
    if found.lost:
        yield f"{found.lost:,} samples were overwritten before they were fetched: sample fewer"
    if unseen := sum(one.unseen for one in found.states.values()):
        yield f"{unseen:,} results were not read: no wait for these ops was seen"
    if thinned := sum(one.thinned for one in found.states.values()):
        yield f"{thinned:,} ops were skipped because ranks had no time to count them: --every"
    if skipped := sum(one.skipped for one in found.states.values()):
        reasons: Counter[str] = sum((one.unread for one in found.found.figures), Counter())
        why = "; ".join(text for text, _ in reasons.most_common(2))
        yield f"{skipped:,} samples have no figures: {why or 'reason unknown'}"
    yield from problem_lines(_problems(found))[:MOST_PROBLEMS]
    failures = {one.failure for one in found.states.values() if one.failure}
    for text in sorted(failures)[:2]:
        yield f"frtop's sampling failed in a rank; please report this: {text}"


def _document(found: JobNumbers, until: str, most: int | None) -> str:
    by_group = {
        name: {found.names.label(key): count for key, count in counts.items()}
        for name, counts in (
            ("equal_ops", found.found.equal_ops),
            ("equal_messages", found.found.equal_messages),
        )
    }
    samples = ordered(found.taken) if most else []
    rows = {
        "rows": [row_of(one, found.names) for one in samples[:most]],
        "more_rows": len(samples[most:]),
    }
    findings = msgspec.to_builtins(found.found, str_keys=False)
    return json_text({
        "schema": "frtop-numbers-1",
        "samples": found.samples,
        "until": until,
        "lost": found.lost,
        "states": {str(rank): state for rank, state in found.states.items()},
        "problems": {str(rank): text for rank, text in _problems(found).items()},
        "places": {str(rank): text for rank, text in found.places.items()},
        "findings": {**findings, **by_group},
        **(rows if most else {}),
    })  # fmt: skip


def json_text(document: object) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode()


def _numbers(source: Source) -> JobNumbers:
    found: JobNumbers = source.news()["tensor_checks"]
    return found
