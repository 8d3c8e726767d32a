"""One round: a job, a screen, what hurts them, and what must be true afterwards."""

from __future__ import annotations

import heapq
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import psutil
import pytest

from chaos.hurts import HURTS
from chaos.looking import Screen, Watch
from chaos.plan import Plan, Way
from chaos.scene import Clocks, Scene, scene
from chaos.site import BASTION, OPERATOR, Site
from chaos.stream import TRACEBACK, WAIT_S, Gaps, Stream
from frtop_probe import keys
from frtop_probe.ring.layout import SUFFIX as RING
from frtop_tui.prepare import prepare
from waiting import wait_for
from zoo.forker import Forker
from zoo.runner import without_frtop

PROGRAM: Final = Path(__file__).with_name("job.py")
LOADED: Final = "torch._dynamo"
"""What takes longest to load in a rank: each optimizer needs it."""
BEGIN_S: Final = 60.0
TRUTH_S: Final = 120.0
"""Longest time from the last hurt until all screens are right."""
END_S: Final = 120.0
"""Longest time for a job to end once it is told to, and for frtop to leave. A rank's interpreter
takes a second of CPU to end: together a minute, at a load of 20 on two cores."""
LONGEST_S: Final = 10.0
"""Longest step while nobody stopped a rank, on a machine with other work."""
AROUND_S: Final = 0.5
"""A step this close to a stop may have waited for it."""
THEIRS: Final = ("torch", "pymp-")
"""Names of what torch and Python leave in TMPDIR, the latter of a process that is killed."""
DIFFERENT: Final = "wrong: step "
"""A rank prints it at a result that is not what it has to be."""
WELL: Final = frozenset({"moving", "blocked", "late", "unknown"})
PATIENT: Final = frozenset({"healthy", "waiting"})
"""Health of a job that goes on."""


class WrongError(Exception):
    """A promise that was broken; the text says which, and what was seen."""


@dataclass(slots=True)
class Result:
    """What a round came to.

    Attributes:
        failure: "" if all promises were kept.
        longest_s: the longest step while nobody stopped a rank.
        truth_s: from the end of the last hurt until the screens were right.
        last_wrong: what was wrong until then.
    """

    plan: Plan
    failure: str = ""
    steps: int = 0
    longest_s: float = 0.0
    truth_s: float = 0.0
    last_wrong: str = ""
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)


class Chaos:
    """Runs rounds. A context manager that leaves no process, file or mount."""

    def __init__(self) -> None:
        # Hosts have a /dev/shm of their own: what they share with us cannot be there.
        self._folder = Path(tempfile.mkdtemp(prefix="frtop-chaos-"))
        self._forkers: dict[tuple[Way, bool], Forker] = {}
        self._clocks = Clocks(self._folder)
        self._make_key()
        self._rounds = 0

    def _make_key(self) -> None:
        """As after the first use of frtop."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(keys.FILE_VARIABLE, str(self._folder / "key"))
            keys.load(create=True)

    def __enter__(self) -> Chaos:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for forker in self._forkers.values():
            forker.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, plan: Plan) -> Result:
        """Runs a round."""
        result, begin = Result(plan), time.monotonic()
        self._rounds += 1
        folder = self._folder / f"{self._rounds}"
        folder.mkdir()
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            try:
                self._run(plan, folder, result, stack)
            except (WrongError, AssertionError) as error:
                log = folder / "log"
                said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
                result.failure = f"{error}\n{said}".rstrip()
        result.seconds = time.monotonic() - begin
        return result

    def _run(self, plan: Plan, folder: Path, result: Result, stack: ExitStack) -> None:
        for name in ("out", "tmp"):
            (folder / name).mkdir()
        there = stack.enter_context(scene(plan, folder, self._clocks))
        forker = self._forker(plan)
        site = _begin(plan, folder, forker, there, stack)
        site.clocks = self._clocks.files
        _hurt(plan, site)
        calm = time.monotonic()
        result.last_wrong = _wait_for_truth(
            partial(_mistake, plan, site, None),
            "after the last hurt",
            lambda: forker.ask(do="look")["ended"],
        )
        result.truth_s = time.monotonic() - calm
        victim = _victim(plan, site) if plan.kills else None
        if victim is not None:
            os.kill(_killed(plan, site, victim), signal.SIGKILL)
            when = f"the {plan.kills} of {victim} was killed"
            _wait_for_truth(partial(_mistake, plan, site, victim), when)
            if DIFFERENT in (log := (folder / "log").read_text(errors="replace")):
                raise WrongError(f"the job's output: {log[-2000:]}")
            if plan.restarts:
                _start_again(plan, folder, site, forker, there)
                when = "after the job was started again"
                _wait_for_truth(partial(_mistake, plan, site, None, victim), when)
        if victim is None or plan.restarts:
            _end(plan, folder, site, forker)
            _take_results(plan, folder, site, result)
        result.counts = dict(site.stream.counts)
        _end_looking(site)
        forker.ask(do="stop")
        _leave(folder, site)

    def _forker(self, plan: Plan) -> Forker:
        """Whose ranks are prepared, have native kernels, or a clock that can jump, as planned."""
        key = plan.way, plan.clock
        if key not in self._forkers:
            native = "1" if plan.way == "native" else "0"
            environ = {**os.environ, "FRTOP_NATIVE": native, "PYTHONWARNINGS": "ignore"}
            if plan.clock:
                environ.update(self._clocks.environment("ranks"))
            folder = self._folder / "-".join(map(str, key))
            folder.mkdir()
            unprepared = plan.way == "unprepared"
            environ = without_frtop(environ) if unprepared else prepare(environ)
            self._forkers[key] = Forker(folder, environ, LOADED)
        return self._forkers[key]


def _begin(plan: Plan, folder: Path, forker: Forker, there: Scene, stack: ExitStack) -> Site:
    """Starts the job and those who look, and waits until all ranks train."""
    stack.callback(forker.ask, do="stop")
    started = _start(plan, forker, there)
    operator = there.operator
    only = "states,verdicts,progress" + ",ops" * plan.ops
    command = operator.command("stream", "--only", only, "--wait", str(WAIT_S))
    stream = Stream(command, operator.environment)
    stack.callback(stream.end, signal.SIGKILL)
    outside, ranks = _training(plan, folder, forker, started)
    site = Site(
        there.places, folder / "out", operator, random.Random(plan.seed), ranks, there.network,
        plan.reach, stream, outside,
    )  # fmt: skip
    if plan.beside == "screen":
        site.screen = Screen(site.out, operator.command(), operator.environment)
        stack.callback(site.screen.close)
    elif plan.beside == "watch":
        site.watch = Watch(site.out, operator.command("watch"), operator.environment)
        stack.callback(site.watch.kill)
    return site


def _start(plan: Plan, forker: Forker, there: Scene) -> list[int]:
    """Starts all ranks, and returns the processes that were forked."""
    environment = there.environment
    started: list[int] = forker.ask(
        do="start", program=str(PROGRAM), ranks=plan.ranks, environment=environment
    )["pids"]
    return started


def _training(
    plan: Plan, folder: Path, forker: Forker, started: list[int]
) -> tuple[list[int], list[int]]:
    """Waits until all ranks train; returns what waits outside for those on hosts, and the ranks."""
    trains = partial(_trains, folder, plan.ranks)
    wait_for(trains, lambda: f"the job trains: {forker.ask(do='look')}", BEGIN_S)
    outside = started if plan.reach in ("ssh", "through") else []
    return outside, [_inner(pid) for pid in outside] or started


def _start_again(plan: Plan, folder: Path, site: Site, forker: Forker, there: Scene) -> None:
    """Kills the ranks that are left and starts new ones at the same address, as torchrun does."""
    for of_before in (*folder.glob("began.*"), folder / "log"):
        of_before.unlink()
    site.stream.gaps = Gaps()
    started = _start(plan, forker, there)
    site.outside, site.ranks = _training(plan, folder, forker, started)
    site.begun = time.monotonic()


def _end_looking(site: Site) -> None:
    site.stream.end()
    ends = [one.end() for one in (site.screen, site.watch) if one is not None]
    if problem := site.stream.problem or "; ".join(filter(None, (*site.problems, *ends))):
        raise WrongError(problem)
    if site.stream.gaps.hidden:
        raise WrongError(f"ops neither shown nor counted as lost: {site.stream.gaps.hidden}")


def _inner(pid: int) -> int:
    """The rank, whose parent waits outside of its host."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _killed(plan: Plan, site: Site, victim: int) -> int:
    """What is killed, so that rank `victim` dies."""
    return site.workers_of(victim)[0] if plan.kills == "worker" else site.ranks[victim]


def _trains(folder: Path, ranks: int) -> bool:
    return all((folder / f"began.{rank}").exists() for rank in range(ranks))


def _hurt(plan: Plan, site: Site) -> None:
    """Does and undoes what is planned, each in its time or as soon after it as possible."""
    begin = time.monotonic()
    moments = [(deed.at_s, number) for number, deed in enumerate(plan.deeds)]
    heapq.heapify(moments)
    with ExitStack() as left:
        undo: dict[int, ExitStack] = {}
        while moments:
            at_s, number = heapq.heappop(moments)
            time.sleep(max(0.0, begin + at_s - time.monotonic()))
            if number in undo:
                undo.pop(number).close()
                continue
            deed = plan.deeds[number]
            undo[number] = left.enter_context(ExitStack())
            undo[number].enter_context(HURTS[deed.name].does(site))
            heapq.heappush(moments, (deed.until_s, number))


def _wait_for_truth(
    mistake: Callable[[], str], when: str, ended: Callable[[], object] = lambda: None
) -> str:
    """Waits until nothing is wrong; returns what was wrong last. No rank may have `ended`."""
    seen = [""]

    def is_right() -> bool:
        if statuses := ended():
            raise WrongError(f"{when}, ranks had ended with {statuses}")
        found = mistake()
        seen[0] = found or seen[0]
        return not found

    try:
        wait_for(is_right, "", TRUTH_S, pause_s=0.2)
    except AssertionError:
        raise WrongError(f"{when}, {TRUTH_S:.0f} s later: {seen[0]}") from None
    return seen[0]


def _mistake(plan: Plan, site: Site, dead: int | None, before: int | None = None) -> str:
    """Returns what those who look, or then a new one, say and is not true.

    `before`: who had died of the job before; a watcher tells of it, too.
    """
    stream = site.stream
    if stream.problem:
        raise WrongError(stream.problem)
    stream.start()  # one that gave up while there was no agent
    seen = Seen(stream.health, dict(stream.states), stream.blames)
    if not _is_true(seen, plan, site, dead):
        return f"the stream says {seen}"
    lookers = (site.screen, dead), (site.watch, before if dead is None else dead)
    for one, told in lookers:
        if one is not None and (wrong := one.mistake(told, site.blind, sure=plan.is_sure)):
            return wrong
    if dead is not None and plan.reach in ("ssh", "through"):
        return ""  # nothing of ours was there before: who comes after a death finds no job
    return _mistake_of_new(plan, site, dead)


def _mistake_of_new(plan: Plan, site: Site, dead: int | None) -> str:
    wait_s = "5" if plan.reach == "here" else "30"
    said = subprocess.run(
        site.operator.command("diagnose", "--json", "--wait", wait_s),
        env=site.operator.environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if TRACEBACK in said.stderr:
        raise WrongError(f"diagnose: {said.stderr[-2000:]}")
    if not said.stdout.startswith("{"):
        if len(site.blind) == plan.ranks:  # nothing in the folder tells of the job any more
            return ""
        return f"diagnose says {said.stderr[-500:]}"
    document: dict[str, Any] = json.loads(said.stdout)
    states = {int(rank): one["state"] for rank, one in document["ranks"].items()}
    blames = [(one["kind"], one["culprits"]) for one in document["verdicts"]]
    seen = Seen(document["health"], states, blames)
    ages = [one["since_s"] for one in document["ranks"].values() if one["since_s"] is not None]
    is_old = not all(-1 <= age <= time.monotonic() - site.begun + 1 for age in ages)
    if _is_true(seen, plan, site, dead) and not is_old:
        return ""
    return f"diagnose says {seen}\n{said.stdout[:3000]}"


class Seen(NamedTuple):
    """What a screen says: health, states by rank, kind and culprits of verdicts."""

    health: str
    states: dict[int, str]
    blames: list[tuple[str, list[int]]]


def _is_true(seen: Seen, plan: Plan, site: Site, dead: int | None) -> bool:
    """Whether the dead rank is blamed, or nobody and all ranks that can be seen move."""
    if dead is not None:
        named = seen.blames == [("dead", [dead])]
        return named or (not plan.is_sure and seen.blames == [("undecided", [])])
    if seen.blames or (not site.blind and seen.health not in PATIENT):
        return False
    return all(
        seen.states.get(rank) in WELL for rank in range(plan.ranks) if rank not in site.blind
    )


def _victim(plan: Plan, site: Site) -> int | None:
    return None if site.blind else site.chance.randrange(plan.ranks)


def _end(plan: Plan, folder: Path, site: Site, forker: Forker) -> None:
    (folder / "end").touch()
    seen: dict[str, Any] = {}

    def has_ended() -> bool:
        seen.update(forker.ask(do="look"))
        return len(seen["ended"]) == plan.ranks

    wait_for(has_ended, lambda: f"the job ends as it was told to: {seen}\n{_stacks(site)}", END_S)
    if set(seen["ended"].values()) != {0}:
        raise WrongError(f"ranks ended with {seen['ended']}")


def _stacks(site: Site) -> str:
    """What ranks and their workers do, for whoever reads of a failure."""
    pids = [pid for rank, own in enumerate(site.ranks) for pid in (own, *site.workers_of(rank))]
    said = [Path(f"/proc/{pid}/status").read_text().split("\nNgid")[0] for pid in _living(pids)]
    py_spy = str(Path(sys.executable).with_name("py-spy"))
    for pid in _living(pids):
        done = subprocess.run(
            [py_spy, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        said.append(done.stdout + done.stderr)
    return "\n".join(said)


def _living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid)]


def _take_results(plan: Plan, folder: Path, site: Site, result: Result) -> None:
    """Checks that all did the same number of steps, and how long they took."""
    found = [json.loads((folder / f"result.{rank}").read_text()) for rank in range(plan.ranks)]
    ahead = [site.ahead_s(rank) for rank in range(plan.ranks)]
    if len({one["steps"] for one in found}) != 1:
        raise WrongError(f"different steps: {found}")
    result.steps = found[0]["steps"]
    result.longest_s = max(
        (
            end - begin
            for one, by in zip(found, ahead, strict=True)
            for begin, end in one["long"]
            if not any(
                begin - by < until + AROUND_S and end - by > since - AROUND_S
                for since, until in site.stood
            )
        ),
        default=0.0,
    )
    if result.longest_s > LONGEST_S:
        raise WrongError(f"a step of {result.longest_s:.1f} s while nobody stopped a rank")
    if TRACEBACK in (log := (folder / "log").read_text(errors="replace")):
        raise WrongError(f"the job's output: {log[-2000:]}")


def _leave(folder: Path, site: Site) -> None:
    """Ends the agent, and looks for what is left."""

    def is_gone() -> bool:
        for agent in site.agents() if site.reach in ("here", "ports") else ():
            with suppress(ProcessLookupError):
                os.kill(agent.pid, signal.SIGTERM)
        return not site.family()

    wait_for(is_gone, lambda: f"all processes have left: {site.family()}", END_S, 0.2)
    if site.network is not None:
        others = (BASTION, OPERATOR)
        wait_for(lambda: not site.on(*others), lambda: f"left there: {site.on(*others)}", END_S)
    logs = site.files(".log")
    for log in logs:
        if TRACEBACK in (text := log.read_text(errors="replace")):
            raise WrongError(f"the agent: {text[-3000:]}")
    blind = {f"{site.ranks[rank]}-" for rank in site.blind}
    left = [
        path.name
        for path in (*site.files(), *(folder / "tmp").iterdir())
        if not (path.suffix == RING and path.name.startswith(tuple(blind)))
        and not path.name.startswith(THEIRS)
        and not (path.suffix == ".log" and path.stat().st_size)  # kept, for whoever looks for it
    ]
    if left:
        said = [log.read_text(errors="replace")[-1000:] for log in logs]
        raise WrongError(f"left behind: {sorted(left)} {said}")
