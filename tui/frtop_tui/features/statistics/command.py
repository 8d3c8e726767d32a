"""`frtop statistics` and `frtop diff`: where time goes, and what changed."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from frtop_tui.cli.file_options import open_files
from frtop_tui.cli.live import connect, wait_for_ranks
from frtop_tui.cli.output import show_progress
from frtop_tui.connect.recorded import RecordedSource
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.features.statistics.comparison_words import comparison_document, comparison_lines
from frtop_tui.features.statistics.regression_words import STATUS, check_document, check_lines
from frtop_tui.files.loader import open_paths
from frtop_tui.job.naming import GroupKey, listed
from frtop_tui.registry import contributions
from frtop_tui.statistics.limits import Limit
from frtop_tui.statistics.of_frame import without_overlap
from frtop_tui.statistics.regression import Check, checked, overall
from frtop_tui.statistics.wanted import StatisticsWanted
from frtop_tui.text.module_words import module_document, module_lines
from frtop_tui.text.statistics_table import statistics_document, statistics_lines

ANSWER_S: Final = 20.0
"""How long to wait for the agents: a full ring takes 20 ms, and a host may have dozens."""
RECORDED_S: Final = 0.0
"""From files: everything, unless a window is asked for."""


def run(options: argparse.Namespace) -> int:
    """Returns 0 with figures, 1 without."""
    for count in contributions("statistics_command", "COUNTED"):
        if (status := count(options)) is not None:
            return int(status)
    source = _source(options)
    try:
        frame = source.frame() if options.paths else wait_for_ranks(
            source, options.wait, show_progress
        )  # fmt: skip
        source.want_statistics(_wanted(options, frame))
        frame = _answered(source, options.wait if options.paths else ANSWER_S)
    finally:
        source.close()
        show_progress("")
    by_module = options.by == "module"
    if options.json and frame.statistics is not None:
        found = frame.statistics
        document = module_document(found) if by_module else statistics_document(found, options.sort)
        print(json.dumps(document, indent=1))
    elif options.json:
        print("null")
    else:
        print(
            "\n".join(module_lines(frame) if by_module else statistics_lines(frame, options.sort))
        )
    return 0 if frame.statistics is not None else 1


def _source(options: argparse.Namespace) -> Source:
    if not options.paths:
        return connect(options)
    return RecordedSource(open_files(options))


def _wanted(options: argparse.Namespace, frame: Frame) -> StatisticsWanted:
    ranks: frozenset[int] | None = options.rank
    if ranks is not None and (strange := sorted(ranks - frame.ranks.keys())):
        raise UsageError(f"the job has no rank {strange[0]}", "`frtop jobs` lists its ranks")
    window = options.window or (RECORDED_S if options.paths else 60.0)
    groups = _groups(options.group, frame) if options.group else None
    return StatisticsWanted(window, calls=True, ranks=ranks, groups=groups)


def _groups(text: str, frame: Frame) -> frozenset[GroupKey]:
    """The groups in a list of names; a name may have a comma itself."""
    called: dict[str, set[GroupKey]] = {}
    for one in frame.groups:
        for name in (one.key.name, one.description, one.label):
            called.setdefault(name, set()).add(one.key)
    names = [text] if text in called else text.split(",")
    if strange := [name for name in names if name not in called]:
        there = sorted({one.label for one in frame.groups})
        raise UsageError(f"no group is called {strange[0]!r}", f"there is {listed(there)}")
    return frozenset().union(*(called[name] for name in names))


def _answered(source: Source, wait_s: float) -> Frame:
    """The first frame with statistics of all ranks; after `wait_s` seconds, of any."""
    end = time.monotonic() + wait_s
    while True:
        frame = source.frame()
        found = frame.statistics
        if found is not None and not found.with_calls:
            found = None  # an answer to an earlier request
        if frame.recorded is not None or (found is not None and not found.missing and found.ranks):
            return frame
        if frame.problem is not None and frame.problem.internal:
            raise FrtopError(frame.problem.text, frame.problem.next)
        if time.monotonic() > end or (found is not None and found.notes):
            return frame
        show_progress(f"asking {len(frame.hosts)} hosts what their ranks did")
        time.sleep(0.05)


def run_diff(options: argparse.Namespace) -> int:
    """Returns 0 whatever changed; with limits, the result of the checks."""
    jobs = options.job or [None]
    if len(jobs) > 2:
        raise UsageError("--job more than twice", "name the run of BEFORE, then that of AFTER")
    before, after = (
        open_paths([Path(path)], job, progress=show_progress)
        for path, job in ((options.a, jobs[0]), (options.b, jobs[-1]))
    )
    after = without_overlap(before, after)
    checks = _checks(before, after, options.fail_above) if options.fail_above else None
    show_progress("")
    if options.json:
        document = comparison_document(before, after)
        if checks is not None:
            document |= check_document(checks)
        print(json.dumps(document, indent=1))
    else:
        lines = comparison_lines(before, after)
        print("\n".join([*lines, "", *check_lines(checks)] if checks is not None else lines))
    return STATUS[overall(checks)] if checks is not None else 0


def _checks(before: Frame, after: Frame, limits: Sequence[Limit]) -> tuple[Check, ...]:
    first, second = before.statistics, after.statistics
    if first is None or second is None:
        which = "first" if first is None else "second"
        return tuple(
            Check(limit, "undecided", why=f"the {which} recording has no ops") for limit in limits
        )
    return checked(first, second, limits)
