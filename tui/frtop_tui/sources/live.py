"""The live source: one thread that owns sockets, job state and diagnosis.

Everything the agents say goes into the job state; a few times a second the state is
judged and the frame put where the screen finds it. Nothing ever waits for one host.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from frtop_probe import keys, wire
from frtop_probe.agent import announcement
from frtop_probe.ring.folder import FolderError, folder
from frtop_tui.diagnosis.engine import Engine, Wanted
from frtop_tui.errors import FrtopError, KeyTrouble, NoAgent
from frtop_tui.job.model import Frame
from frtop_tui.job.state import JobState
from frtop_tui.sources.line import Answered, Down, Happening, Heard, Line, Up
from frtop_tui.sources.places import LOCAL, Place, expand, resolve

FRAME_NS: Final = 250_000_000
WATCH_NS: Final = 500_000_000
WATCH_STACKS_NS: Final = 1_000_000_000
ANSWER_NS: Final = 3_000_000_000
DISCOVER_NS: Final = 500_000_000
WATCHED_OPS: Final = 256


class LiveSource:
    """Frames of a running job, from the agents of its hosts."""

    def __init__(self, specs: Sequence[str] = (LOCAL,), job: str | None = None) -> None:
        """Reads the key and starts the thread.

        Args:
            specs: host lists as people write them; `local` is this host.
            job: name or run id of the job to show; None is the newest.

        Raises:
            UsageError: a spec is no host list.
            KeyTrouble: our key is missing, or not only ours.
        """
        names = [spec for spec in specs if spec != LOCAL]
        self._names = expand(names) if names else ()
        self._local = LOCAL in specs
        try:
            # For this host the first to come makes the key, be it agent or operator.
            # Elsewhere a second key would be minted silently, and refused.
            pair = keys.load(create=not self._names)
        except keys.KeyProblem as error:
            raise KeyTrouble(error.text, error.next) from error
        self._pair = pair
        self._job = job
        self._wishes: queue.SimpleQueue[tuple[str, frozenset[int]]] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._frame = Frame(now_ns=time.monotonic_ns(), wall_ns=time.time_ns())
        self._thread = threading.Thread(target=self._run, name="frtop source", daemon=True)
        self._thread.start()

    def frame(self) -> Frame:
        return self._frame

    def watch(self, ranks: Iterable[int]) -> None:
        self._wishes.put(("watch", frozenset(ranks)))

    def dump(self, ranks: Iterable[int]) -> None:
        self._wishes.put(("dump", frozenset(ranks)))

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        line = Line(self._pair)
        resolver = ThreadPoolExecutor(max_workers=16, thread_name_prefix="frtop resolver")
        try:
            session = _Session(line, self._job)
            if self._local:
                session.look_here(time.monotonic_ns())
            waiting = {name: resolver.submit(resolve, name) for name in self._names}
            for name in self._names:
                session.state.set_host(name, "connecting", "")
            while not self._closing.is_set():
                session.take_wishes(self._wishes)
                session.turn(waiting, self._local)
                frame = session.new_frame()
                if frame is not None:
                    self._frame = frame
        except Exception as error:  # noqa: BLE001 - a screen that freezes silently would lie
            self._frame = _failed(self._frame, error)
        finally:
            resolver.shutdown(wait=False, cancel_futures=True)
            line.close()


def _failed(frame: Frame, error: Exception) -> Frame:
    """The last frame, with nothing claimed any more."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    problem = (
        f"frtop itself failed: {error!r} at {Path(where.filename).name}:{where.lineno}; what is "
        "shown is the moment before. Quit and start again; the job is not touched"
    )
    return replace(frame, problem=problem, health="undecided", verdicts=())


class _Session:
    """What the thread knows. Not shared."""

    def __init__(self, line: Line, job: str | None) -> None:
        self.state = JobState()
        self._line = line
        self._job = job
        self._engine = Engine()
        self._ids = itertools.count(1)
        self._places: dict[str, Place] = {}
        self._instances: dict[str, str] = {}  # an agent's instance -> its place
        self._asked_state: dict[str, int] = {}  # place -> when, until answered
        self._asked_look: dict[tuple[str, str], tuple[int, int]] = {}  # place, reason -> id, when
        self._watched: frozenset[int] = frozenset()
        self._to_dump: frozenset[int] = frozenset()
        self._wanted: tuple[Wanted, ...] = ()
        self._watched_at = self._watched_stacks_at = 0
        self._framed_at = self._discovered_at = 0
        self._here: announcement.Announcement | None = None
        self._problem = ""
        self._frame: Frame | None = None

    def take_wishes(self, wishes: queue.SimpleQueue[tuple[str, frozenset[int]]]) -> None:
        while not wishes.empty():
            verb, ranks = wishes.get()
            if verb == "watch":
                self._watched = ranks
                self._watched_at = self._watched_stacks_at = 0
            else:
                self._to_dump |= ranks

    def turn(self, waiting: dict[str, Future[Place]], local: bool) -> None:
        """One round: hosts that resolved, what the sockets say, what is to be asked."""
        for name in [name for name, future in waiting.items() if future.done()]:
            self._resolved(name, waiting.pop(name))
        now = time.monotonic_ns()
        if local and now - self._discovered_at >= DISCOVER_NS:
            self.look_here(now)
        for happening in self._line.wait(50):
            self._take(happening, time.monotonic_ns())
        self._ask_again(time.monotonic_ns())

    def _resolved(self, name: str, future: Future[Place]) -> None:
        try:
            place = future.result()
        except FrtopError as error:
            self.state.set_host(name, "failed", error.sentence)
        else:
            self._places[name] = place
            self._line.connect(place)

    def look_here(self, now: int) -> None:
        """Finds this host's agent by its folder; follows it when it is started anew."""
        self._discovered_at = now
        try:
            found = announcement.read(folder())
        except FolderError as error:
            self._problem = str(error)
            return
        if found is None:
            if self._here is None:
                nothing = NoAgent(
                    "no agent of frtop runs on this host (no prepared job has run here lately)",
                    "start the job with `frtop run -- torchrun ...`, "
                    "or name its hosts: --connect 'node[0-7]'",
                )
                self._problem = nothing.sentence
            return
        self._problem = ""
        if self._here is not None and found.instance == self._here.instance:
            return
        here = Place(found.host, found.address, found.pub, found.ask)
        if here.name in self._places:
            self._line.disconnect(self._places[here.name])
        self._here = found
        self._places[here.name] = here
        self.state.set_host(here.name, "connecting", "")
        self._line.connect(here)

    def _take(self, happening: Happening, now: int) -> None:
        match happening:
            case Up(place):
                self._asked_state.pop(place, None)  # what was asked before is lost
                self._ask_state(place, now)
            case Down(place, error):
                self.state.set_host(place, "failed", error.sentence)
            case Heard(update):
                place = self._instances.get(update.instance, "")
                if place and not self.state.apply(place, update, now):
                    self._ask_state(place, now)
            case Answered(place, answer):
                self._answered(place, answer, now)

    def _answered(self, place: str, answer: wire.Answer, now: int) -> None:
        match answer:
            case wire.StateAnswer(_, update):
                self._asked_state.pop(place, None)
                self._instances[update.instance] = place
                self.state.set_host(place, "heard", "")
                self.state.apply(place, update, now)
            case wire.LookAnswer():
                self.state.apply_look(place, answer, now)
                self._settle(place, answer.id)
            case wire.Refusal(id_, text):
                self._settle(place, id_)
                self.state.set_host(place, "heard", text)

    def _settle(self, place: str, answered: int) -> None:
        for purpose, (asked, _) in list(self._asked_look.items()):
            if purpose[0] == place and asked == answered:
                del self._asked_look[purpose]

    def _ask_state(self, place: str, now: int) -> None:
        if now - self._asked_state.get(place, -ANSWER_NS) < ANSWER_NS:
            return
        if self._line.ask(place, wire.AskState(next(self._ids))):
            self._asked_state[place] = now

    def _ask_again(self, now: int) -> None:
        for place, when in list(self._asked_state.items()):
            if now - when >= ANSWER_NS:
                del self._asked_state[place]
                self._ask_state(place, now)
        frame = self._frame
        if frame is None:
            return
        if self._watched and now - self._watched_at >= WATCH_NS:
            self._watched_at = now
            stacks = now - self._watched_stacks_at >= WATCH_STACKS_NS
            if stacks:
                self._watched_stacks_at = now
            self._ask_looks(
                "watch", self._wishes_of(frame, self._watched, stacks), now, WATCHED_OPS
            )
        if self._to_dump:
            self._ask_looks("dump", self._wishes_of(frame, self._to_dump, True), now)
            self._to_dump = frozenset()
        if self._wanted:
            self._ask_looks("judge", self._wanted, now)
            self._wanted = ()

    def _wishes_of(self, frame: Frame, ranks: Iterable[int], stacks: bool) -> tuple[Wanted, ...]:
        return tuple(
            Wanted(view.host, view.key, (), stacks)
            for rank in ranks
            if (view := frame.ranks.get(rank)) is not None
        )

    def _ask_looks(self, purpose: str, wanted: Iterable[Wanted], now: int, ops: int = 32) -> None:
        """One request per host; a host that owes an answer is not asked again yet."""
        by_host: dict[tuple[str, bool], list[Wanted]] = defaultdict(list)
        for one in wanted:
            by_host[one.host, one.stacks].append(one)
        for (host, stacks), ones in by_host.items():
            owed = self._asked_look.get((host, purpose))
            if owed is not None and now - owed[1] < ANSWER_NS:
                continue
            number = next(self._ids)
            question = wire.AskLook(
                number,
                keys=tuple(one.key for one in ones),
                stacks=stacks,
                ops=ops,
                pids=tuple(pid for one in ones for pid in one.pids),
            )
            if self._line.ask(host, question):
                self._asked_look[host, purpose] = number, now

    def new_frame(self) -> Frame | None:
        """A judged frame, if it is time for one."""
        now = time.monotonic_ns()
        if now - self._framed_at < FRAME_NS:
            return None
        self._framed_at = now
        frame = self.state.frame(now, time.time_ns(), self._job)
        judgement = self._engine.judge(frame)
        self._wanted = judgement.looks
        self._frame = judgement.frame
        if self._problem and not self._frame.ranks:
            self._frame = replace(self._frame, problem=self._problem)
        return self._frame
