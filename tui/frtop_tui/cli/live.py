"""Connects a command to a live job, and waits for frames."""

from __future__ import annotations

import argparse
import math
import os
import pwd
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from frtop_probe import wire
from frtop_tui.cli.output import show_progress
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.confirmation import Settling
from frtop_tui.diagnosis.evidence.rank_activity import last_activity_ns
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.errors import FrtopError, NoAgent, NoJob, NotOurs, Unreachable, UsageError
from frtop_tui.job.model import Problem
from frtop_tui.job.naming import listed, printable
from frtop_tui.job.units import counted
from frtop_tui.statistics.wanted import StatisticsWanted

if TYPE_CHECKING:
    from frtop_tui.connect.live import LiveSource

SEARCH_S: Final = 5.0
"""How long a named job may take to appear: agents search for uninstrumented jobs only once somebody
looks, and then they read each rank."""
LOADED_S: Final = 45.0
"""The same on a host that is so loaded that its agent is still searching."""
APPEAR_S: Final = 5.0
"""How long a named rank may take to report."""
REACH_S: Final = 45.0
"""How long hosts may take to be reached through a shell: a log-in, a look for a Python."""
NOBODY_S: Final = 0.5
"""A problem that lasts this long while no host reports is final."""
FIRST_ANSWER_S: Final = 3.0
"""How long to wait for the first answer of any host."""
FAILED_S: Final = 1.5
"""Hosts that have failed for this long will not answer; an agent that has just ended may return."""
BESIDE_S: Final = 1.0
"""How long a settled verdict waits for what belongs beside it: the output of a rank, the lines that
led to ops that differ."""


def connect(options: argparse.Namespace) -> LiveSource:
    """The source for the options that name hosts, `--job`, `--pid` and `--read-only`.

    Starts this host's agent if none runs. Its imports are here, as commands on files need no
    network.

    Raises:
        NoAgent: there is no agent on this host, and none can be started.
        NotOurs: `--pid` names another user's process.
        FrtopError: what `LiveSource` raises.
    """
    from frtop_tui.connect.endpoints import LOCAL  # noqa: PLC0415
    from frtop_tui.connect.live import LiveSource  # noqa: PLC0415
    from frtop_tui.connect.pipes.places import Place, places, this_host  # noqa: PLC0415
    from frtop_tui.job.naming import RankPid  # noqa: PLC0415

    reached: tuple[Place, ...] = places(options.ssh, options.via, options.through, options.user)
    hosts = options.connect
    if LOCAL in hosts and (here := this_host()):
        reached, hosts = (*here, *reached), [name for name in hosts if name != LOCAL]
    require_root(options)
    pid = getattr(options, "pid", None)
    if pid is not None:
        require_own(pid, options.user)
    if LOCAL in hosts:
        from frtop_tui.connect.agent_start import start_agent  # noqa: PLC0415

        problem = start_agent()
        if problem is not None:
            raise NoAgent(problem.text, problem.next)
    explain = getattr(options, "explain", False)
    job = options.job if pid is None else RankPid(pid)
    return LiveSource(
        hosts,
        job,
        places=reached,
        python=options.python,
        user=options.user,
        read_only=options.read_only,
        explain=explain,
    )


@contextmanager
def connected(options: argparse.Namespace, *, judges: bool = False) -> Iterator[LiveSource]:
    """The source of `connect`, closed at the end; `judges`: with the statistics for verdicts."""
    source = connect(options)
    try:
        if judges:
            source.want_statistics(StatisticsWanted(), whom="verdicts")
        yield source
    finally:
        source.close()
        show_progress("")


def require_root(options: argparse.Namespace) -> None:
    """Raises `UsageError` if `--user` does not fit this host."""
    user = options.user
    if not user or options.ssh or options.via:
        return
    uid = uid_of(user)
    if uid is None:
        raise UsageError(f"there is no user {user} on this host", "check the name")
    if uid == 0:
        raise UsageError(f"--user {user} is root itself", "run it as root, without --user")
    if os.geteuid() != 0:
        raise UsageError(
            f"only root can look as user {user}",
            "leave out --user" if uid == os.geteuid() else f"run it as {user}, or as root",
        )


def uid_of(user: str) -> int | None:
    """The uid that `--user` names; None without it."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return int(user) if user.isdecimal() and int(user) < 2**32 - 1 else None


def require_own(pid: int, whose: str = "") -> None:
    """Raises `NotOurs` unless a process of this host belongs to user `whose`, or else to us."""
    from frtop_probe.unprepared.discovery import facts  # noqa: PLC0415 - as in `connect`
    from frtop_probe.unprepared.discovery.proc_reader import only_uid  # noqa: PLC0415

    uid = only_uid(f"/proc/{pid}")
    if uid is None or uid == (uid_of(whose) if whose else os.getuid()):
        return
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    raise NotOurs(
        f"process {pid} belongs to user {user}: frtop does not look at it",
        facts.advice(user, as_root=os.geteuid() == 0),
    )


def wait_for_report(source: Source, wait_s: float, report: Callable[[str], None]) -> Frame:
    """The first frame that is worth printing, or the last one after `wait_s` seconds.

    Raises:
        NoAgent: there is no agent on this host.
        NoJob: no job was found within `wait_s`.
        Unreachable: none of the hosts can be reached.
    """
    from frtop_tui.connect.followers import follower_kinds  # noqa: PLC0415 - all features'

    settling, settled_s = Settling(0), math.inf

    def can_be_reported(frame: Frame, waited_s: float) -> bool:
        settled = settling.is_over(frame, round(waited_s * 1e9))
        connecting = any(host.state == "connecting" for host in frame.hosts)
        # A confirmed verdict does not wait for a host that may never answer.
        if not settled or (connecting and not (frame.verdicts and waited_s > FIRST_ANSWER_S)):
            return False
        nonlocal settled_s
        settled_s = min(settled_s, waited_s)
        lacking = _awaits_lines(frame) or any(kind.lacks(frame) for kind in follower_kinds())
        return not lacking or waited_s - settled_s > BESIDE_S

    return _wait_until(can_be_reported, source, wait_s, report)


def _awaits_lines(frame: Frame) -> bool:
    """Whether a look may still show which lines led to ops that differ."""
    differ = (party[0] for one in frame.verdicts if one.kind == "mismatch" for party in one.parties)
    views = (frame.ranks[rank] for rank in differ if rank in frame.ranks)
    return any(
        view.state not in ("dead", "done") and last_activity_ns(view) > view.stacks_taken_ns
        for view in views
    )


def wait_for_ranks(source: Source, wait_s: float, report: Callable[[str], None]) -> Frame:
    """The first frame with all ranks of the job, or the last one after `wait_s` seconds.

    It gives a host `FIRST_ANSWER_S` seconds to answer.

    Raises:
        FrtopError: as in `wait_for_report`.
    """

    def are_there(frame: Frame, waited_s: float) -> bool:
        connecting = any(host.state == "connecting" for host in frame.hosts)
        complete = frame.coverage.complete and not connecting
        return bool(frame.ranks) and (complete or waited_s > FIRST_ANSWER_S)

    return _wait_until(are_there, source, wait_s, report)


def _wait_until(
    is_ready: Callable[[Frame, float], bool],
    source: Source,
    wait_s: float,
    report: Callable[[str], None],
) -> Frame:
    """The first frame that is ready, given the seconds waited; the last one after `wait_s`."""
    timer = AppearanceTimer()
    while True:
        frame = source.frame()
        timer.require_visible(frame)
        waited_s = timer.waited_s
        # Beside a job that ended, one that nobody prepared may live.
        if is_ready(frame, waited_s) and not timer.is_searching(frame):
            return frame
        if (waited_s > wait_s and not timer.is_searching(frame)) or found_nothing(frame):
            require_job(frame)
            return frame
        report(describe_progress(frame))
        time.sleep(0.05)


def describe_progress(frame: Frame) -> str:
    """The health and how many ranks report; while hosts are being reached, how far they are."""
    coverage = frame.coverage
    if frame.health == "empty":
        return "no job so far; if it is elsewhere: `frtop jobs` says what to try"
    known = f"{coverage.reporting:,} of {counted(coverage.expected, 'rank')}"
    ranks = f"{frame.health}, {known} reporting"
    waiting = [host for host in frame.hosts if host.state == "connecting" and host.progress]
    if not waiting:
        return ranks
    reported = sum(host.state == "reporting" for host in frame.hosts)
    step, name = waiting[0].progress, waiting[0].name
    hosts = f"{reported} of {counted(len(frame.hosts), 'host')} reporting"
    return f"{hosts}; {name}: {printable(step)}; {ranks}"


def await_rank(source: Source, rank: int) -> JudgedRank:
    """A rank, as soon as it reports.

    Raises:
        FrtopError: it does not, and why.
    """
    timer = AppearanceTimer()
    while True:
        frame = source.frame()
        view = frame.ranks.get(rank)
        if view is not None:
            return view
        timer.require_visible(frame)
        if timer.waited_s > APPEAR_S:
            are = "is" if len(frame.ranks) == 1 else "are"
            there = f"{counted(len(frame.ranks), 'rank')} {are}" if frame.ranks else "no rank is"
            reasons = [str(host.problem) for host in frame.hosts if host.problem]
            raise FrtopError(
                f"rank {rank} is unreachable; {there}",
                reasons[0] if reasons else "`frtop diagnose` lists them",
            )
        show_progress("connecting")
        time.sleep(0.05)


def require_ranks(frame: Frame) -> None:
    """Raises `FrtopError` if no rank reported."""
    if not frame.ranks:
        problem = frame.problem or Problem("no job found")
        raise FrtopError(problem.text, problem.next or "`frtop diagnose` shows why")


def await_frame(source: Source, is_ready: Callable[[Frame], bool], seconds: float) -> Frame:
    """The first frame that is ready, or the last one after that many seconds."""
    end = time.monotonic() + seconds
    while True:
        frame = source.frame()
        if is_ready(frame) or time.monotonic() > end:
            return frame
        time.sleep(0.05)


def require_job(frame: Frame) -> None:
    """Raises `NoJob` if hosts answered, and no job was found on them."""
    reported = [host.name for host in frame.hosts if host.state == "reporting"]
    if reported and not (frame.ranks or frame.other_jobs or frame.problem):
        notes = [note for host in frame.hosts for note in host.notes]
        where = f"was found on {listed(reported, 4)}"
        text = f"no distributed PyTorch job of this user {where}"
        again = "try again: the host is overloaded, or a process there is stuck in its driver"
        if unsearched := [note for note in notes if note.startswith(wire.NO_SEARCH)]:
            raise NoJob(f"{text}, and not every process was searched: {unsearched[0]}", again)
        if searching := [host.name for host in frame.hosts if host.searching]:
            raise NoJob(f"{text} so far: the search goes on at {listed(searching, 4)}", again)
        if nameless := [note.text for note in frame.coverage.notes]:
            raise NoJob(
                f"{text}, and {nameless[0]} there",
                "`frtop doctor` there says whether frtop may read them, and what would allow it",
            )
        hidden = (wire.RINGS_ELSEWHERE, wire.OF_OTHERS)
        if there := [note for mark in hidden for note in notes if mark in note]:
            what, _, step = there[0].partition("; ")
            raise NoJob(f"{text}; {what}", step)
        raise NoJob(
            text,
            "start one with `frtop run -- torchrun ...`; name the hosts of a running one:"
            " --ssh 'node[0-7]'; or, as root, its user: --user NAME",
        )


class AppearanceTimer:
    """How long a command has waited for a job to appear, and whether one still may.

    Time that shells take to reach hosts does not count.
    """

    def __init__(self) -> None:
        self._created = self._begun = time.monotonic()
        self._reported_at: float | None = None
        self._failed_at = math.inf

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._begun

    def searched_s(self, frame: Frame) -> float:
        """How long agents have searched at most: since a host first answered."""
        if self._reported_at is None and any(host.state == "reporting" for host in frame.hosts):
            self._reported_at = time.monotonic()
        return 0.0 if self._reported_at is None else time.monotonic() - self._reported_at

    def is_searching(self, frame: Frame) -> bool:
        """Whether no rank lives that is known yet, but some host may still find one."""
        if not any(host.searching for host in frame.hosts):
            return False
        lives = any(rank.state not in ("dead", "done") for rank in frame.ranks.values())
        return not lives and self.searched_s(frame) < LOADED_S

    def require_visible(self, frame: Frame) -> None:
        """Raises an error if nothing appeared and nothing will.

        Raises:
            NoAgent: there is no agent on this host, or it has not found the job.
            Unreachable: none of the hosts can be reached.
        """
        searched_s = self.searched_s(frame)
        failed = [host for host in frame.hosts if host.state == "failed"]
        all_failed = bool(failed) and len(failed) == len(frame.hosts)
        self._failed_at = min(self._failed_at, time.monotonic()) if all_failed else math.inf
        if frame.ranks:
            return
        reported = any(host.state == "reporting" for host in frame.hosts)
        agent_start = sys.modules.get("frtop_tui.connect.agent_start")  # without: none is started
        if not reported and agent_start is not None and agent_start.is_starting():
            return
        reaching = any(host.state == "connecting" and host.progress for host in frame.hosts)
        if not reported and reaching and time.monotonic() - self._created < REACH_S:
            self._begun = time.monotonic()
            return
        over_s = LOADED_S if self.is_searching(frame) else SEARCH_S
        searched = searched_s > over_s or found_nothing(frame)
        over = searched if reported else self.waited_s > NOBODY_S
        if frame.problem and over:
            raise NoAgent(frame.problem.text, frame.problem.next)
        lasts = time.monotonic() - self._failed_at > FAILED_S
        if all_failed and lasts and self.waited_s > FIRST_ANSWER_S:
            problem = failed[0].problem or Problem(f"{failed[0].name} cannot be reached")
            raise Unreachable(problem.text, problem.next)


def found_nothing(frame: Frame) -> bool:
    """Whether all hosts have been searched, and none has a rank."""
    hosts = all(host.state == "reporting" and host.none_found for host in frame.hosts)
    return bool(frame.hosts) and hosts and not (frame.ranks or frame.other_jobs)


def can_ask() -> bool:
    """Whether there is a terminal to ask a person on; a daemon has closed its input."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr.isatty())


def agrees(question: str) -> bool:
    """Asks on the terminal; anything but `y` or `yes` means no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return False
