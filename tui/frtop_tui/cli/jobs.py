"""`frtop jobs`: lists all jobs that agents see on the named hosts."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Final

from frtop_tui.cli.live import SEARCH_S, AppearanceTimer, connected, found_nothing
from frtop_tui.cli.output import show_progress
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.job_activity import known_jobs
from frtop_tui.job.job_list import listed_jobs
from frtop_tui.job.units import counted
from frtop_tui.text.jobs import ELSEWHERE, jobs_document, jobs_lines

FOUND: Final = 0
NONE_FOUND: Final = 1
ADVISE_S: Final = 1.0
"""A person in the wrong place hears after this time what to try: the search takes longer."""
SETTLED_S: Final = 2.5
"""Agents search every two seconds: by then all findings have arrived."""
ENDED_S: Final = 0.5
"""Jobs that ended do not change, and all agents have said that they found no other."""


def run(options: argparse.Namespace) -> int:
    """Returns 0 if there are jobs, otherwise 1."""
    begun = time.monotonic()
    elsewhere = ELSEWHERE

    def report(line: str) -> None:
        nonlocal elsewhere
        advises = elsewhere and sys.stderr.isatty() and options.connect == ["local"]
        if advises and time.monotonic() - begun > ADVISE_S and not listed_jobs(source.frame()):
            show_progress("")
            print("no job so far; frtop goes on looking", *elsewhere, sep="\n", file=sys.stderr)
            elsewhere = ()
        show_progress(line)

    with connected(options) as source:
        frame = wait_for_jobs(source, options.wait, report)
    if options.json:
        print(json.dumps(jobs_document(frame), indent=1))
    else:
        print("\n".join(jobs_lines(frame, elsewhere)))
    return FOUND if known_jobs(frame) else NONE_FOUND


def wait_for_jobs(source: Source, wait_s: float, report: Callable[[str], None]) -> Frame:
    """The first frame with a stable list of jobs.

    Raises:
        NoAgent: there is no agent on this host.
        Unreachable: none of the hosts can be reached.
    """
    timer = AppearanceTimer()
    known: object = None
    changed_at = time.monotonic()
    while True:
        frame = source.frame()
        now = time.monotonic()
        rows = listed_jobs(frame)
        if not rows:
            timer.require_visible(frame)
        current = [(row.call, row.lives, row.activity.ranks, row.in_the_way) for row in rows]
        if current != known:
            known, changed_at = current, now
        connecting = any(host.state == "connecting" for host in frame.hosts)
        # While no job lives, agents may still be searching for uninstrumented ones.
        searched = all(host.none_found for host in frame.hosts)
        lives = any(row.lives for row in rows)
        settled_s = SETTLED_S if lives or not searched else ENDED_S
        least_s = settled_s if lives or searched else SEARCH_S
        over = (
            not timer.is_searching(frame)
            and timer.searched_s(frame) > least_s
            and now - changed_at > settled_s
        )
        if over and not connecting:
            return frame
        if (timer.waited_s > wait_s and not timer.is_searching(frame)) or found_nothing(frame):
            return frame
        report(f"{counted(len(rows), 'job')} so far")
        time.sleep(0.05)
