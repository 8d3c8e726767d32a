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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

from chaos.hurts import HURTS, Site
from chaos.plan import Plan, Way
from chaos.screen import TRACEBACK, Screen
from e2e.conftest import family, kill_family
from free_port import free_port
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
END_S: Final = 60.0
"""Longest time for a job to end once it is told to, and for frtop to leave."""
LONGEST_S: Final = 10.0
"""Longest step while nobody stopped a rank, on a machine with other work."""
AROUND_S: Final = 0.5
"""A step this close to a stop may have waited for it."""
SMALL: Final = "size=24m"
"""Room for four rings, and little besides."""
THEIRS: Final = ("torch", "pymp-")
"""Names of what torch and Python leave in TMPDIR, the latter of a process that is killed."""
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
    """

    plan: Plan
    failure: str = ""
    steps: int = 0
    longest_s: float = 0.0
    truth_s: float = 0.0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)


class Chaos:
    """Runs rounds. A context manager that leaves no process, file or mount."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="frtop-chaos-", dir="/dev/shm"))
        self._forkers: dict[Way, Forker] = {}
        self._rounds = 0

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
        home = folder / "frtop"
        home.mkdir(mode=0o700)
        if plan.small:
            stack.enter_context(_small(home))
        for name in ("out", "tmp"):
            (folder / name).mkdir()
        environment = _environment(plan, folder)
        forker = self._forker(plan.way)
        stack.callback(kill_family, home)
        stack.callback(forker.ask, do="stop")
        ranks = forker.ask(
            do="start", program=str(PROGRAM), ranks=plan.ranks, environment=environment
        )["pids"]
        address = f"127.0.0.1:{environment['MASTER_PORT']}"
        operators = {**os.environ, **environment}
        screen = Screen(address, operators, ops=plan.ops)
        stack.callback(screen.end, signal.SIGKILL)
        site = Site(
            home, folder / "out", address, operators, random.Random(plan.seed), ranks, screen
        )
        trains = partial(_trains, folder, plan.ranks)
        wait_for(trains, lambda: f"the job trains: {forker.ask(do='look')}", BEGIN_S)
        _hurt(plan, site)
        calm = time.monotonic()
        truth = partial(_mistake, plan, site, None)
        _wait_for_truth(truth, "after the last hurt")
        result.truth_s = time.monotonic() - calm
        if plan.kills and (victim := _victim(plan, site)) is not None:
            os.kill(ranks[victim], signal.SIGKILL)
            _wait_for_truth(partial(_mistake, plan, site, victim), f"rank {victim} was killed")
        else:
            _end(plan, folder, forker)
            _take_results(plan, folder, site, result)
        screen.end()
        result.counts = dict(screen.counts)
        if problem := screen.problem or "; ".join(site.problems):
            raise WrongError(problem)
        if screen.gaps.hidden:
            raise WrongError(f"ops neither shown nor counted as lost: {screen.gaps.hidden}")
        forker.ask(do="stop")
        _leave(folder, site)

    def _forker(self, way: Way) -> Forker:
        if way not in self._forkers:
            native = "1" if way == "native" else "0"
            environ = {**os.environ, "FRTOP_NATIVE": native, "PYTHONWARNINGS": "ignore"}
            folder = self._folder / way
            folder.mkdir()
            change: Callable[..., dict[str, str]] = (
                without_frtop if way == "unprepared" else prepare
            )
            self._forkers[way] = Forker(folder, change(environ), LOADED)
        return self._forkers[way]


def _environment(plan: Plan, folder: Path) -> dict[str, str]:
    """Returns what ranks, agents and operators get."""
    return {
        "FRTOP_DIR": str(folder / "frtop"),
        "FRTOP_KEY_FILE": str(folder.parent / "key"),  # as after the first use of frtop
        "FRTOP_BIND": "127.0.0.1",
        "FRTOP_AGENT_WITH": str(os.getpid()),
        "FRTOP_BOXES": "0",
        "FRTOP_UNPREPARED": "1" if plan.way == "unprepared" else "0",
        "WORLD_SIZE": str(plan.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TMPDIR": str(folder / "tmp"),
        "ZOO_FOLDER": str(folder),
        "CHAOS_END": str(folder / "end"),
        "CHAOS_SEED": str(plan.seed),
        "CHAOS_THREAD": "1" if plan.thread else "0",
    }


@contextmanager
def _small(folder: Path) -> Iterator[None]:
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"mode=0700,{SMALL}", "tmpfs", str(folder)], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


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


def _wait_for_truth(mistake: Callable[[], str], when: str) -> None:
    seen = [""]

    def is_right() -> bool:
        seen[0] = mistake()
        return not seen[0]

    try:
        wait_for(is_right, "", TRUTH_S, pause_s=0.2)
    except AssertionError:
        raise WrongError(f"{when}, {TRUTH_S:.0f} s later: {seen[0]}") from None


def _mistake(plan: Plan, site: Site, dead: int | None) -> str:
    """Returns what the screen, or then a new one, says and is not true."""
    screen = site.screen
    if screen.problem:
        raise WrongError(screen.problem)
    screen.start()  # one that gave up while there was no agent
    seen = Seen(screen.health, dict(screen.states), screen.blames)
    if not _is_true(seen, plan, site, dead):
        return f"the screen says {seen}"
    said = subprocess.run(
        [sys.executable, "-m", "frtop_tui", "diagnose", "--json", "--wait", "5", "--job", site.job],
        env=site.environment, capture_output=True, text=True, timeout=120, check=False,
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
    if _is_true(seen, plan, site, dead):
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
        return seen.blames == [("dead", [dead])]
    if seen.blames or (not site.blind and seen.health not in PATIENT):
        return False
    return all(
        seen.states.get(rank) in WELL for rank in range(plan.ranks) if rank not in site.blind
    )


def _victim(plan: Plan, site: Site) -> int | None:
    return None if site.blind else site.chance.randrange(plan.ranks)


def _end(plan: Plan, folder: Path, forker: Forker) -> None:
    (folder / "end").touch()
    seen: dict[str, Any] = {}

    def has_ended() -> bool:
        seen.update(forker.ask(do="look"))
        return len(seen["ended"]) == plan.ranks

    wait_for(has_ended, lambda: f"the job ends as it was told to: {seen}", END_S)
    if set(seen["ended"].values()) != {0}:
        raise WrongError(f"ranks ended with {seen['ended']}")


def _take_results(plan: Plan, folder: Path, site: Site, result: Result) -> None:
    """Checks that all did the same number of steps, and how long they took."""
    found = [json.loads((folder / f"result.{rank}").read_text()) for rank in range(plan.ranks)]
    if len({one["steps"] for one in found}) != 1:
        raise WrongError(f"different steps: {found}")
    result.steps = found[0]["steps"]
    result.longest_s = max(
        (
            end - begin
            for one in found
            for begin, end in one["long"]
            if not any(
                begin < until + AROUND_S and end > since - AROUND_S for since, until in site.stood
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
        for agent in site.agents():
            with suppress(ProcessLookupError):
                os.kill(agent.pid, signal.SIGTERM)
        return not family(site.folder)

    wait_for(is_gone, lambda: f"all processes have left: {family(site.folder)}", END_S, 0.2)
    for log in site.folder.glob("*.log"):
        if TRACEBACK in (text := log.read_text(errors="replace")):
            raise WrongError(f"the agent: {text[-3000:]}")
    blind = {f"{site.ranks[rank]}-" for rank in site.blind}
    left = [
        path.name
        for path in (*site.folder.iterdir(), *(folder / "tmp").iterdir())
        if not (path.suffix == RING and path.name.startswith(tuple(blind)))
        and not path.name.startswith(THEIRS)
        and not (path.suffix == ".log" and path.stat().st_size)  # kept, for whoever looks for it
    ]
    if left:
        said = [log.read_text(errors="replace")[-1000:] for log in site.folder.glob("*.log")]
        raise WrongError(f"left behind: {sorted(left)} {said}")
