"""Examines many hosts through their shells, each once, and collects the answers.

Another machine wrote an answer, and people read it: it is checked against its types, texts are cut,
and control sequences are removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from frtop_probe.features.doctor.facts import HostFacts, SearchFacts
from frtop_probe.pipe.start_script import start_script
from frtop_tui.connect.connection_events import (
    Connected,
    ConnectionEvent,
    ConnectionFailed,
    Examined,
    Progressed,
    SamePlace,
)
from frtop_tui.connect.endpoints import PipeEndpoint
from frtop_tui.connect.handshake import incompatible
from frtop_tui.connect.pipes.connections import PipeConnections
from frtop_tui.connect.pipes.framing import PipeError
from frtop_tui.connect.pipes.payload import agent_lines
from frtop_tui.connect.pipes.place_search import PlaceSearch
from frtop_tui.connect.pipes.places import Place, last_python
from frtop_tui.errors import FrtopError, RemoteTrouble
from frtop_tui.job.naming import printable
from frtop_tui.job.units import counted

MAX_BYTES: Final = 1 << 20
"""The facts of one host. 16 ranks take 20 KB."""
MAX_TEXT: Final = 400
MAX_ITEMS: Final = 64
_MAX_DEPTH: Final = 8
_MAX_NUMBER: Final = 2**64


class FarFacts(Struct, frozen=True):
    """Of one host."""

    host: HostFacts
    search: SearchFacts


def read_facts(text: bytes) -> FarFacts:
    """Decodes what `frtop_probe.features.doctor.facts` wrote.

    Raises:
        PipeError: it is something else, or too large.
    """
    if len(text) > MAX_BYTES:
        raise PipeError("the facts of a host are too large")
    try:
        return msgspec.convert(_bounded(msgspec.json.decode(text)), FarFacts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PipeError(f"no facts of a host: {error}") from error


def _bounded(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise PipeError("the facts of a host are nested too deeply")
    if isinstance(value, str):
        return printable(value)[:MAX_TEXT]
    if isinstance(value, int):
        return max(-_MAX_NUMBER, min(value, _MAX_NUMBER)) if not isinstance(value, bool) else value
    if isinstance(value, list):
        return [_bounded(one, depth + 1) for one in value[:MAX_ITEMS]]
    if isinstance(value, dict):
        items = list(value.items())[:MAX_ITEMS]
        return {printable(name)[:MAX_TEXT]: _bounded(one, depth + 1) for name, one in items}
    return value


DOCTOR: Final = "features.doctor.through_pipe"
"""The module that runs there."""
AGAIN_S: Final = 3.0
"""Once only failed hosts are left, they get this long for another try."""
ANSWER_S: Final = 100.0
"""From the first sign of life to the answer: longer than the doctor's own limit."""
_STEP_MS: Final = 50


@dataclass(slots=True)
class HostAnswer:
    """The facts of one host, or why there are none; `same_as` is another name with its answer."""

    host: str
    facts: HostFacts | None = None
    search: SearchFacts = field(default_factory=SearchFacts)
    error: FrtopError | None = None
    same_as: str = ""


class Examinations:
    """Belongs to one thread. `close` ends everything it started."""

    def __init__(self, places: Sequence[Place], python: str = "", user: str = "") -> None:
        self._search = PlaceSearch(places)
        script = start_script(python, last=last_python(places), user=user)
        self._connections = PipeConnections(script, partial(agent_lines, DOCTOR))
        self._answers = {place.name: HostAnswer(place.name) for place in places}
        self._endpoints: dict[str, PipeEndpoint] = {}
        self._up: dict[str, float] = {}  # hosts whose doctor works, and since when
        self._doing: dict[str, str] = {}
        self._idle_since = 0.0
        """Since when only failed hosts are left; 0.0 while others are still awaited."""

    def run(self, report: Callable[[str], None]) -> list[HostAnswer]:
        """Waits until each host has answered or failed twice; `report` gets lines of progress."""
        while not self._is_over(time.monotonic()):
            self._look_for_hosts()
            for event in self._connections.wait(_STEP_MS):
                self._take(event)
            self._give_up_late(time.monotonic())
            report(self._progress())
        return list(self._answers.values())

    def close(self) -> None:
        """Ends all commands."""
        self._connections.close()

    def _is_over(self, now: float) -> bool:
        open_ = [one for one in self._answers.values() if one.facts is None and not one.same_as]
        if not open_:
            return True
        failed = all(one.error is not None for one in open_)
        if not failed or any(one.host in self._up for one in open_):
            self._idle_since = 0.0
            return False
        self._idle_since = self._idle_since or now
        return now - self._idle_since > AGAIN_S

    def _look_for_hosts(self) -> None:
        found = self._search.search(time.monotonic_ns(), self._endpoints)
        for name, error in found.failed:
            self._answers[name].error = error
        for name in found.over:  # not a host itself: it led to some
            self._answers.pop(name, None)
        for endpoint in found.endpoints:
            if isinstance(endpoint, PipeEndpoint) and endpoint.host not in self._endpoints:
                self._answers.setdefault(endpoint.host, HostAnswer(endpoint.host))
                self._endpoints[endpoint.host] = endpoint
                self._connections.connect(endpoint)

    def _take(self, event: ConnectionEvent) -> None:
        match event:
            case Progressed(host, text):
                self._doing[host] = text
            case Connected(host):
                self._up[host] = time.monotonic()
                self._doing[host] = "examining"
            case SamePlace(host, other):
                self._answers[host].same_as = other
                self._drop(host)
            case Examined(host, text):
                # It stays connected, so that another name of this place is recognised.
                self._up.pop(host, None)
                try:
                    found = read_facts(text)
                except PipeError:
                    self._answers[host].error = incompatible(host)
                else:
                    self._answers[host].facts, self._answers[host].search = found.host, found.search
            case ConnectionFailed(host, error):
                self._up.pop(host, None)
                if self._answers[host].facts is None:
                    self._answers[host].error = error
                else:
                    self._drop(host)
            case _:
                return

    def _give_up_late(self, now: float) -> None:
        for host, since in list(self._up.items()):
            if now - since > ANSWER_S:
                text = f"{host}: the examination did not finish within {ANSWER_S:.0f} s"
                self._answers[host].error = RemoteTrouble(text, "run `frtop doctor` on that host")
                self._drop(host)

    def _drop(self, host: str) -> None:
        self._up.pop(host, None)
        self._connections.disconnect(self._endpoints[host])

    def _progress(self) -> str:
        answers = self._answers.values()
        done = sum(one.facts is not None or bool(one.same_as) for one in answers)
        late = next((one.host for one in answers if one.facts is None and not one.same_as), "")
        text = f"{done} of {counted(len(answers), 'host')} examined"
        return f"{text}; {late}: {self._doing.get(late, 'starting')}" if late else text
