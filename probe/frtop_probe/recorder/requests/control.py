"""Carries out what an operator wants recorded from now on, and says what is.

A change costs nothing until it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from frtop_probe.features.tensor_checks.in_rank.requests import NumberRequests
from frtop_probe.recorder.requests.requests import GoOn, Handler, Request, Response

if TYPE_CHECKING:
    from frtop_probe.recorder.recorder import Recorder

MAX_NOTE: Final = 200
"""Characters of a note: the side table of the ring holds some thousand notes in all."""


class ControlRequests:
    """Handlers of one recorder, for its thread."""

    def __init__(self, recorder: Recorder, torch: Any) -> None:
        self._recorder = recorder
        self._torch = torch
        self._numbers = NumberRequests(recorder.numbers)

    @property
    def handlers(self) -> dict[str, Handler]:
        """What can be asked for."""
        return {
            "ChangeRecording": self._asked_to_change,
            "ReadSamples": self._numbers.asked_for_samples,
        }

    def _asked_to_change(self, request: Request, go_on: GoOn) -> Response:  # noqa: ARG002
        """Carries out all that the request has, and answers what is recorded then."""
        problems = []
        watch = request.get("numbers")
        if isinstance(watch, dict):
            problems.append(self._numbers.asked_to_watch(watch))
        phases = request.get("phases")
        if isinstance(phases, bool):
            problems.append(self._recorder.switch_phases(on=phases))
        sites = request.get("sites")
        if isinstance(sites, bool):
            self._recorder.sites.switch(on=sites)
        modules = request.get("modules")
        if isinstance(modules, bool):
            problems.append(self._recorder.switch_modules(self._torch, on=modules))
        if request.get("longer") is True:
            problems.append(self._lengthen())
        note = request.get("note")
        if isinstance(note, str) and note:
            problems.append(self._write_note(note))
        help_text = "; ".join(filter(None, problems))
        found: dict[str, Any] = {"error": "failed" if help_text else "", "help": help_text}
        return {**found, "recorded": self._state()}, b""

    def _lengthen(self) -> str:
        try:
            self._recorder.writer.lengthen()
        except OSError as error:
            folder = self._recorder.writer.path.parent
            return f"the ring was not made longer: {folder}: {error.strerror}"
        return ""

    def _write_note(self, text: str) -> str:
        line = "".join(letter if letter.isprintable() else " " for letter in text[:MAX_NOTE])
        written = self._recorder.writer.write_note(f"operator: {line}")
        return "" if written else "the ring has no room for more notes"

    def _state(self) -> dict[str, Any]:
        """With the fields of `RecordedNow`."""
        recorder = self._recorder
        writer, shape = recorder.writer, recorder.writer.shape
        return {
            "numbers": self._numbers.state(),
            "phases": recorder.records_phases,
            "slots": writer.history,
            "ring_bytes": shape.size if writer.history == shape.slots else shape.longest,
            "sites": recorder.sites.on,
            "modules": recorder.records_modules,
            "longer_slots": shape.more,
            "longer_bytes": shape.longest - shape.size,
        }
