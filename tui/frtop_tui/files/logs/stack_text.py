"""Stacks in the lines of a log, as programs print them: py-spy, faulthandler, and torch for an op.

They are read line by line, since lines of others may come between.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Protocol

from frtop_probe import wire
from frtop_probe.stacks.pyspy_output import CallFrame, Thread, Variable
from frtop_tui.files import pyspy

_PROCESS: Final = re.compile(r"Process (?P<pid>\d{1,10}): (?P<command>.*)")
_ABOUT: Final = re.compile(r"Python v3\.|Parent Process \d{1,10}: ")
_THREAD: Final = re.compile(
    r"Thread (?:(?P<tid>\d{1,10})|0x(?P<ident>[0-9A-Fa-f]{1,16}))"
    r" \((?P<state>active\+gil|active|idle)\)(?:: \"(?P<name>.*)\")?"
)
_CALL: Final = re.compile(
    r" {4}(?P<of>\S.{0,999}) \((?P<file>[^()]{1,999}?)(?::(?P<line>\d{1,9}))?\)"
)
_VALUE: Final = re.compile(r" {12}(?P<name>\w{1,200}): (?P<value>.*)")
_PYTHON: Final = (".py", ".pyx", ">")
"""How files of Python end; others with a line are C with debug information."""
_AT: Final = re.compile(
    r"(?:(?:Current thread|Thread) 0x(?P<ident>[0-9a-f]{1,16})(?: \[(?P<name>.{0,200})\])?|Stack)"
    r" \(most recent call first\):"
)
_FILE: Final = re.compile(
    r'  File "(?P<file>[^"]{0,999})", line (?P<line>\d{1,9}|\?\?\?) in (?P<of>.+)'
)
_NO_FRAME: Final = re.compile(r"  (?:\.\.\.|<.*>|Garbage-collecting)")
_STATE: Final = re.compile(r"Python runtime state: ")
_NUMBERED: Final = re.compile(
    r"#(?P<number>\d{1,4}) (?P<of>.{1,999}) from (?P<file>.{1,999}):(?P<line>\d{1,9})"
)
_BOOTSTRAP: Final = re.compile(r"\b_bootstrap$")


def begun(text: str) -> StackText:
    """A reader of the stack that begins with this line, which it has not taken yet."""
    if text.startswith(("Process ", "Python v3.")):
        return PySpyText()
    return FaultText()


class StackText(Protocol):
    """A stack that is being read."""

    pid: int  # 0: not said
    command: str
    done: bool  # no further lines can follow

    def take(self, text: str) -> bool:
        """Takes its next line; False if that is none of it."""

    @property
    def threads(self) -> tuple[wire.ThreadStack, ...]:
        """The threads so far."""


@dataclass(slots=True)
class PySpyText:
    """`py-spy dump`: a process, then its threads, MainThread mostly first."""

    pid: int = 0
    command: str = ""
    done: bool = False
    _threads: list[Thread] = field(default_factory=list)

    def take(self, text: str) -> bool:
        frames = self._threads[-1].frames if self._threads else None
        if frames is not None and (found := _CALL.fullmatch(text)) is not None:
            frames.append(_call(found))
        elif frames and text.startswith("        "):
            if (found := _VALUE.fullmatch(text)) is not None:
                variables = frames[-1].variables = frames[-1].variables or []
                variables.append(Variable(found["name"], found["value"]))
        elif (found := _THREAD.fullmatch(text)) is not None:
            if len(self._threads) < pyspy.MAX_THREADS:
                self._threads.append(self._thread(found))
        elif frames is None and (found := _PROCESS.fullmatch(text)) is not None:
            self.pid, self.command = int(found["pid"]), found["command"][:1000]
        elif not text.strip():
            self.done = bool(frames)
        else:
            return frames is None and _ABOUT.match(text) is not None
        return True

    def _thread(self, found: re.Match[str]) -> Thread:
        name, state = found["name"], found["state"]
        tid = int(found["tid"]) if found["tid"] else None
        if name == pyspy.MAIN and tid is not None:
            self.pid = self.pid or tid
        ident = int(found["ident"], 16) if found["ident"] else tid or 0
        return Thread(
            ident, state != "idle", state == "active+gil", [], self.pid, name, os_thread_id=tid
        )

    @property
    def threads(self) -> tuple[wire.ThreadStack, ...]:
        return pyspy.threads_of(self._threads)


def _call(found: re.Match[str]) -> CallFrame:
    """A frame; py-spy writes no line for C frames, or that of a C file."""
    file, line = found["file"], int(found["line"] or 0)
    native = not line or not file.endswith(_PYTHON)
    return CallFrame(found["of"], file, line, module=file if native else None)


@dataclass(slots=True)
class FaultText:
    """faulthandler: the main thread is the last one. Which threads run is not said."""

    pid: int = 0
    command: str = ""
    done: bool = False
    _threads: list[Thread] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def take(self, text: str) -> bool:
        if (found := _AT.fullmatch(text)) is not None:
            ident = int(found["ident"] or "0", 16)
            if ident in self._seen:
                return False  # the next dump begins
            self._seen.add(ident)
            if len(self._threads) < pyspy.MAX_THREADS:
                self._threads.append(
                    Thread(
                        ident, active=False, owns_gil=False, frames=[], thread_name=found["name"]
                    )
                )
        elif self._threads and (found := _FILE.fullmatch(text)) is not None:
            line = int(found["line"]) if found["line"].isdecimal() else 0
            self._threads[-1].frames.append(CallFrame(found["of"], found["file"], line))
            self.done = found["of"] == "<module>"
        else:
            known = _NO_FRAME if self._threads else _STATE
            return not text.strip() or known.match(text) is not None
        return True

    @property
    def threads(self) -> tuple[wire.ThreadStack, ...]:
        main = self._threads[-1] if self._threads else None
        if main is not None and not (main.frames and _BOOTSTRAP.search(main.frames[-1].name)):
            main.thread_name = pyspy.MAIN
        return pyspy.threads_of(self._threads)


@dataclass(slots=True)
class OpText:
    """Where torch's watchdog says that an op was issued, the innermost frame first."""

    pid: int = 0
    command: str = ""
    done: bool = False
    frames: list[wire.TraceFrame] = field(default_factory=list)

    def take(self, text: str) -> bool:
        found = _NUMBERED.fullmatch(text)
        if found is None or int(found["number"]) != len(self.frames) or len(self.frames) > 512:
            return False
        line = int(found["line"])
        self.frames.append(wire.TraceFrame(found["of"], found["file"], line))
        return True

    @property
    def threads(self) -> tuple[wire.ThreadStack, ...]:
        return ()
