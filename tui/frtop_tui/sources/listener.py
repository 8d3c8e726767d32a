"""What the live source's thread knows: hosts, the job's state, and the last frame of it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from frtop_probe import wire
from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement
from frtop_probe.ring.folder import FolderError, folder
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.errors import FrtopError, NoAgent
from frtop_tui.job.model import Frame
from frtop_tui.job.state import JobState
from frtop_tui.sources.asking import Asking
from frtop_tui.sources.line import Answered, Down, Happening, Heard, Line, Up
from frtop_tui.sources.places import Place

FRAME_NS: Final = 250_000_000
REST: Final = 3
"""A frame that took long is followed by a rest of so many times as long."""
DISCOVER_NS: Final = 500_000_000


class Listener:
    """Belongs to the source's thread. `names` are the hosts the operator named."""

    def __init__(self, line: Line, names: tuple[str, ...], job: str | None) -> None:
        self.asking = Asking(line)
        self._line = line
        self._names = names
        self._job = job
        self._state = JobState()
        self._engine = Engine()
        self._places: dict[str, Place] = {}
        self._instances: dict[str, str] = {}  # an agent's instance -> its place
        self._next_frame = self._discovered_at = 0
        self._here: Announcement | None = None
        self._problem = ""
        self._frame: Frame | None = None
        for name in names:
            self._state.set_host(name, "connecting")

    def resolved(self, name: str, found: Place | FrtopError) -> None:
        """A name's address is known now, or why not."""
        if isinstance(found, FrtopError):
            self._state.set_host(name, "failed", found.sentence)
        else:
            self._connect(found)

    def look_here(self, now: int) -> None:
        """Finds this host's agent by its folder; follows it when it is started anew."""
        if now - self._discovered_at < DISCOVER_NS:
            return
        self._discovered_at = now
        try:
            found = announcement.read(folder())
        except FolderError as error:
            self._problem = str(error)
            return
        if found is None:
            self._problem = "" if self._here is not None else _no_agent().sentence
            return
        self._problem = ""
        if self._here is not None and found.instance == self._here.instance:
            return
        # It may have been named as well; two places of one name would be one too few.
        name = f"{found.host} (local)" if found.host in self._names else found.host
        self._here = found
        if name in self._places:
            self._line.disconnect(self._places.pop(name))
            self.asking.forget(name)
        self._state.set_host(name, "connecting")
        self._connect(Place(name, found.address, found.pub, found.ask))

    def _connect(self, place: Place) -> None:
        """Once per address: a second connection to it would only be confused with it."""
        if any(known.requests == place.requests for known in self._places.values()):
            self._state.forget_host(place.name)
            return
        self._places[place.name] = place
        self._line.connect(place)

    def take(self, happening: Happening, now: int) -> None:
        match happening:
            case Up(place):
                self.asking.state(place, now, anew=True)  # what was asked before is lost
            case Down(place, error):
                self._state.set_host(place, "failed", error.sentence)
            case Heard(update):
                place = self._instances.get(update.instance, "")
                if place in self._places and not self._state.apply(place, update, now):
                    self.asking.state(place, now)
            case Answered(place, answer):
                self.asking.settle(place, answer)
                self._answered(place, answer, now)

    def _answered(self, place: str, answer: wire.Answer, now: int) -> None:
        match answer:
            case wire.StateAnswer(_, update):
                known = self._instances.setdefault(update.instance, place)
                if known != place and known in self._places:
                    # One agent by two names: its ranks must not be counted twice.
                    self._line.disconnect(self._places.pop(place))
                    self.asking.forget(place)
                    self._state.forget_host(place)
                    return
                self._instances[update.instance] = place
                self._state.set_host(place, "heard")
                self._state.apply(place, update, now)
            case wire.LookAnswer():
                self._state.apply_look(place, answer, now)
            case wire.Refusal():
                pass  # a rank that went, or an agent that is busy: the next turn asks again

    def frame(self) -> Frame | None:
        """A judged frame, if it is time for one."""
        now = time.monotonic_ns()
        if now < self._next_frame:
            self.asking.turn(self._frame, now)
            return None
        judgement = self._engine.judge(self._state.frame(now, time.time_ns(), self._job))
        self._frame = judgement.frame
        if self._problem and not self._frame.ranks:
            self._frame = replace(self._frame, problem=self._problem)
        self.asking.want(judgement.looks)
        self.asking.turn(self._frame, now)
        # With very many ranks, hearing them comes before looking at them more often.
        self._next_frame = max(now + FRAME_NS, (1 + REST) * time.monotonic_ns() - REST * now)
        return self._frame


def _no_agent() -> NoAgent:
    return NoAgent(
        "no agent of frtop runs on this host (no prepared job has run here lately)",
        "start the job with `frtop run -- torchrun ...`, or name its hosts: --connect 'node[0-7]'",
    )
