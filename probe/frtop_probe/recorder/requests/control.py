"""Changes what a rank records when an operator asks, and says what is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from frtop_probe.recorder.feature import RankSetting, switch_of
from frtop_probe.recorder.own_ring import lengthened
from frtop_probe.recorder.requests.requests import GoOn, Handler, Request, Response

if TYPE_CHECKING:
    from frtop_probe.recorder.recorder import Recorder

MAX_NOTE: Final = 200
"""Characters of a note: the ring's side table holds a few thousand notes in all."""


class ControlRequests:
    """Handlers of one recorder, for its thread."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._settings = {
            **{name: one for each in recorder.features for name, one in each.settings.items()},
            "phases": RankSetting(
                switch_of(recorder.switch_phases), lambda: recorder.records_phases
            ),
            "sites": RankSetting(switch_of(self._switch_sites), lambda: recorder.sites.on),
        }
        self.handlers: dict[str, Handler] = {"ChangeRecording": self._asked_to_change}

    def _asked_to_change(self, request: Request, go_on: GoOn) -> Response:  # noqa: ARG002
        """Makes all changes in the request, and answers what is recorded afterwards."""
        given = request.get("settings")
        wanted = given if isinstance(given, dict) else {}
        problems = [one.change(wanted.get(name)) for name, one in self._settings.items()]
        if request.get("longer") is True:
            problems.append(lengthened(self._recorder.ring))
        note = request.get("note")
        if isinstance(note, str) and note:
            problems.append(self._write_note(note))
        help_text = "; ".join(filter(None, problems))
        found: dict[str, Any] = {"error": "failed" if help_text else "", "help": help_text}
        return {**found, "recorded": self._state()}, b""

    def _switch_sites(self, on: bool) -> str:
        self._recorder.sites.switch(on=on)
        return ""

    def _write_note(self, text: str) -> str:
        line = "".join(letter if letter.isprintable() else " " for letter in text[:MAX_NOTE])
        written = self._recorder.ring.write_note(f"operator: {line}")
        return "" if written else "the ring has no room for more notes"

    def _state(self) -> dict[str, Any]:
        """Returns the fields of `RecordedNow`."""
        ring, shape = self._recorder.ring, self._recorder.ring.shape
        return {
            "settings": {name: one.state() for name, one in self._settings.items()},
            "slots": ring.history,
            "ring_bytes": shape.size if ring.history == shape.slots else shape.longest,
            "longer_slots": shape.more,
            "longer_bytes": shape.longest - shape.size,
        }
