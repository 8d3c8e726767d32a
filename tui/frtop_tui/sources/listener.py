"""What the live source's thread knows: hosts, the job's state, and the last frame of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError
from frtop_tui.job.naming import JobKey
from frtop_tui.job.state import JobState
from frtop_tui.sources.asking import Asking
from frtop_tui.sources.comparing import Comparing
from frtop_tui.sources.here import Here
from frtop_tui.sources.line import Answered, Down, Happening, Heard, Line, Up
from frtop_tui.sources.places import Place, Resolver
from frtop_tui.sources.wishes import Wishes

FRAME_NS: Final = 250_000_000
REST: Final = 3
"""A frame that took long is followed by a rest of so many times as long."""
RESOLVE_AGAIN_NS: Final = 10_000_000_000
READ_ONLY: Final = "started with --read-only"


class Listener:
    """Belongs to the source's thread.

    Args of the constructor: `names` are the hosts the operator named, `here` finds those of
    this host (None: they were not asked for).
    """

    def __init__(
        self,
        line: Line,
        names: tuple[str, ...],
        job: str | JobKey | None,
        here: Here | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self.asking = Asking(line, read_only=read_only)
        self._line = line
        self._here = here
        self._names = names
        self._job = job
        self._state = JobState(READ_ONLY if read_only else "")
        self._engine = Engine()
        self.wishes = Wishes(self.asking, self._state)
        self._comparing = Comparing(self.asking.errands, self._state)
        self._resolver = Resolver(names)
        self._resolved_at: dict[str, int] = {}
        self._places: dict[str, Place] = {}
        self._endpoints: set[str] = set()
        self._instances: dict[str, str] = {}  # an agent's instance -> its place
        self._agents: dict[str, str] = {}  # a place -> the instance that it had last
        self._up: set[str] = set()
        self._doubles: set[str] = set()
        """Names that turned out to be other names of agents that are known."""
        self._next_frame = 0
        self._frame: Frame | None = None
        for name in names:
            self._state.set_host(name, "connecting")

    def choose(self, job: JobKey | None) -> None:
        """Shows this job from now on; None: the newest."""
        self._job = job
        self._next_frame = 0

    def inspect(self, rank: int) -> None:
        self.wishes.inspect(self._frame, rank, time.monotonic_ns())

    def save(self, rank: int, sequence: int, path: Path) -> None:
        self.wishes.save(self._frame, rank, sequence, path, now=time.monotonic_ns())

    def capture(self, path: Path, *, automatic: bool) -> None:
        self.wishes.capture(self._frame, path, automatic=automatic, now=time.monotonic_ns())

    def discover(self, now: int) -> None:
        """Takes in names that were resolved, and agents of this host that came or went."""
        for name, found in self._resolver.found():
            self._resolved_at[name] = now
            if not isinstance(found, FrtopError):
                self._connect(found)
            elif name not in self._places:
                self._state.set_host(name, "failed", found.sentence)
        for name in self._names:
            # It may have an address now, or another one.
            since = now - self._resolved_at.get(name, now)
            settled = name in self._up or name in self._doubles
            if since >= RESOLVE_AGAIN_NS and not settled:
                self._resolved_at[name] = now
                self._resolver.resolve(name)
        if self._here is not None:
            found_here = self._here.look(now)
            for place in found_here.places:
                self._connect(place)
            for name, problem in found_here.unreachable:
                self._state.set_host(name, "failed", problem)

    def _connect(self, place: Place) -> None:
        """Once per address: a second connection to it would only be confused with it."""
        known = self._places.get(place.name)
        if known == place:
            return
        if known is not None:
            self._disconnect(known)
        if place.requests in self._endpoints:
            self._doubles.add(place.name)
            self._state.forget_host(place.name)
            return
        self._places[place.name] = place
        self._endpoints.add(place.requests)
        self._state.set_host(place.name, "connecting")
        self._state.place_host(place.name, place.address_and_port)
        self._line.connect(place)

    def _disconnect(self, place: Place) -> None:
        del self._places[place.name]
        self._endpoints.discard(place.requests)
        self._up.discard(place.name)
        self._line.disconnect(place)
        self.asking.forget(place.name)

    def take(self, happening: Happening, now: int) -> None:
        match happening:
            case Up(place):
                self._up.add(place)
                self.asking.state(place, now, anew=True)  # what was asked before is lost
                self.asking.timing.begin(place, now)
            case Down(place, error):
                self._up.discard(place)
                self.asking.forget(place)
                self._state.set_host(place, "failed", error.sentence, now)
                if self._line.is_up(place):  # it spoke, in words that we do not know
                    self.asking.state_later(place, now)
            case Heard(update):
                place = self._instances.get(update.instance, "")
                if place in self._places and not self._state.apply(place, update, now):
                    self.asking.state(place, now)
            case Answered(place, answer):
                self._answered(place, answer, now)

    def _answered(self, place: str, answer: wire.Response, now: int) -> None:
        match answer:
            case wire.StateResponse(_, update, may_act):
                self._heard_whole(place, update, may_act, now)
            case wire.SnapshotResponse():
                self._state.apply_look(place, answer, now)
            case wire.TimeResponse():
                sent = self.asking.timing.heard(place, answer.id, now)
                if sent is not None:
                    self._state.time(place, sent, now, answer)
            case wire.TensorsResponse():
                self._state.apply_tensors(place, answer)
            case wire.Error() if self.asking.is_state(place, answer.id):
                self._state.refused(place, answer.text)
        # Last: whoever awaits this answer finds it in the job's state already.
        self.asking.settle(place, answer, now)

    def _heard_whole(self, place: str, update: wire.Update, may_act: bool, now: int) -> None:
        known = self._instances.get(update.instance, place)
        if known != place and known in self._up:
            # One agent by two names: its ranks must not be counted twice.
            self._doubles.add(place)
            self._disconnect(self._places[place])
            self._state.forget_host(place)
            return
        if known != place and known in self._places:
            self._disconnect(self._places[known])  # the way by which it cannot be reached now
            self._doubles.add(known)
            self._state.forget_host(known)
        self._instances[update.instance] = place
        before = self._agents.get(place, update.instance)
        self._agents[place] = update.instance
        self.asking.errands.met(place, same=before == update.instance)
        self._state.set_host(place, "heard")
        self._state.permit(place, may_act=may_act)
        self._state.apply(place, update, now)

    def frame(self) -> Frame | None:
        """A judged frame, if it is time for one."""
        now = time.monotonic_ns()
        for place in self._state.doubted():
            self.asking.timing.hasten(place, now)
        if now < self._next_frame:
            self.asking.turn(self._frame, now)
            self.wishes.turn(self._frame, now)
            return None
        told = self._state.frame(now, time.time_ns(), self._job)
        judgement = self._engine.judge(told)
        frame = judgement.frame
        if frame.ranks:
            frame = replace(frame, notes=(*told.notes, *frame.notes))
        elif self._here is not None and self._here.problem:
            frame = replace(frame, problem=self._here.problem)
        self.asking.want(judgement.look_requests)
        self._comparing.want(judgement.ops_requests, now)
        self.asking.turn(frame, now)
        self.wishes.turn(frame, now)
        self._frame = replace(frame, writings=self.wishes.writings)
        # With very many ranks, hearing them comes before looking at them more often.
        self._next_frame = max(now + FRAME_NS, (1 + REST) * time.monotonic_ns() - REST * now)
        return self._frame

    def close(self) -> None:
        """Gives up what is being fetched; what is being written may end."""
        self.wishes.close(time.monotonic_ns())
