"""Records values that the job itself reports, such as its loss: `frtop_probe.report`.

A value is read only if that cannot wait for a device. Nothing here raises into the program.
"""

from __future__ import annotations

import numbers
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from frtop_probe.recorder.guard import raised_by_signal_handler
from frtop_probe.recorder.marks.marks import MAX_NUMBER
from frtop_probe.recorder.marks.steps import StepCounter
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring.layout import MAX_REPORT_NAME, MAX_REPORT_NAMES, MarkKind, Side

TOO_MANY: Final = f"frtop_probe.report takes {MAX_REPORT_NAMES} names a rank: it drops further ones"
TOO_LONG: Final = f"frtop_probe.report drops names of more than {MAX_REPORT_NAME} characters"
NO_ROOM: Final = "frtop_probe.report drops further names: the ring has no room for them"
NEXT: Final = "pass a Python number"
_DROPPED: Final = 0


class ReportRecorder:
    """Writes one mark for each name and call."""

    def __init__(self, ring: OwnRing, steps: StepCounter, note: Callable[[str], object]) -> None:
        """`note` writes a note unless it was written before."""
        self._ring = ring
        self._marks = ring.marks
        self._steps = steps
        self._note = note
        self._ids: dict[str, int] = {}
        self._lock = threading.Lock()
        self._refused: set[str] = set()
        """The first names with a note: there is one for each, whatever values follow."""
        self._last: dict[str, tuple[int, float]] = {}
        """What libraries logged last, by name."""

    def report(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Writes the values, as those of this step.

        Args:
            step: None: the step that ended last.
            values: by name.
        """
        of = self._steps.last if step is None else max(0, min(step, MAX_NUMBER))
        ids, write = self._ids, self._marks.report
        for name, value in values.items():
            number = ids.get(name)
            if number is None:
                number = self._intern(name)
            if not number:
                continue
            kind = type(value)
            if kind is float:
                write(of, number, value)
            elif (read := self._read(name, value)) is not None:
                write(of, number, read)

    def logged(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Writes what a library logs, once: several loggers get the same values.

        Leaves out what is no number, such as texts and pictures, without a note.
        """
        of = self._steps.last if step is None else step
        fresh: dict[str, float] = {}
        for name, value in values.items():
            if not isinstance(name, str) or not (_is_tensor(value) or is_readable(value)):
                continue
            read = value if type(value) is float else self._read(name, value)
            if read is None:
                continue
            known, self._last[name] = self._last.get(name), (of, read)
            if known is None or known[0] != of or repr(known[1]) != repr(read):
                fresh[name] = read
            if len(self._last) > 2 * MAX_REPORT_NAMES:
                self._last.clear()
        self.report(of, fresh)

    def _intern(self, name: str) -> int:
        """Returns the id of a new name; 0 if it is dropped."""
        with self._lock:
            if name in self._ids:
                return self._ids[name]
            if len(name) > MAX_REPORT_NAME:
                self._note(TOO_LONG)
                return _DROPPED
            number = len(self._ids) + 1
            if number > MAX_REPORT_NAMES:
                self._note(TOO_MANY)
                return _DROPPED
            if not self._ring.write_entry(Side.REPORT, number, name):
                self._note(NO_ROOM)
                return _DROPPED
            self._ids[name] = number
            self._ring.marks.watch(MarkKind.REPORT)
            return number

    def _read(self, name: str, value: Any) -> float | None:
        """Returns the value; None if reading it might wait for a device, or it is no number."""
        why = why_not_readable(value)
        try:
            if not why:
                number = value.detach().item() if _is_tensor(value) else value
                return float(number)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            why = f"it cannot be read ({type(error).__name__})"
        if name not in self._refused and len(self._refused) < MAX_REPORT_NAMES:
            self._refused.add(name)
            self._note(f"frtop_probe.report does not record {name}: {why}; {NEXT}")
        return None


def is_readable(value: object) -> bool:
    """Whether a value can be recorded."""
    return not why_not_readable(value)


def why_not_readable(value: Any) -> str:
    """Why a value is not recorded; "" if it is a number whose reading waits for no device."""
    if isinstance(value, numbers.Real):  # numpy's scalars are registered there
        return ""
    kind = type(value)
    if _is_tensor(value):
        device = value.device.type
        if device != "cpu":
            return f"it is a tensor on {device}, and reading that would wait for the device"
        if value.numel() != 1:
            return f"it is a tensor of {value.numel()} elements"
        return "" if not value.is_complex() else "it is a complex number"
    if kind.__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return "" if getattr(value.dtype, "kind", "") in "biuf" else "it is no number"
    return f"a {kind.__name__} might wait for a device, or is no number"


def _is_tensor(value: object) -> bool:
    """Whether it is a plain tensor: reading a DTensor may issue an op."""
    torch = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)
