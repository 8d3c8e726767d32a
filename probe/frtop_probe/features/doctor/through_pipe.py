"""`frtop doctor` at the end of a pipe: examines this host once, for an operator elsewhere.

It runs in the archive, as the agent does, and writes no file. The examination is a child in a
session of its own; this process notices when the operator leaves, and ends the child.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import Any, Final, NoReturn

from frtop_probe.agent.resources import limit_resources
from frtop_probe.features.doctor.facts import document
from frtop_probe.features.doctor.host_reader import read_host
from frtop_probe.features.doctor.search import find_ranks
from frtop_probe.pipe import program_file
from frtop_probe.pipe.channel import SILENCE_S
from frtop_probe.pipe.input import Bye, Examine, LineReader, LineSplitter, Ping, SentTool
from frtop_probe.pipe.introduction import introduction
from frtop_probe.pipe.lines import LineError, described
from frtop_probe.proc import risky_calls, tool_process
from frtop_probe.proc.child_process import die_with

EXAMINE_S: Final = 90.0
"""Every trial has its own deadline; all together take 2 s, or 40 s if all hang."""
_PIECE: Final = 256 * 1024
_AGAIN: Final = "try again; if it fails again, run `frtop doctor` on that host"


def main(archive: int, rest: bytes = b"") -> int:  # noqa: ARG001 - stays open while this runs
    """Serves the operator on standard input and output; returns the exit status."""
    limit_resources()
    for stream in (0, 1):
        os.set_blocking(stream, True)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, _leave)
    far = FarDoctor(os.environ.get("SLURM_PROCID", ""), rest)
    try:
        far.run()
    except LineError as error:
        far.say(b"frtop-error", {"text": str(error), "next": _AGAIN})
        return 1
    except OSError:  # the operator no longer reads
        return 1
    finally:
        far.end()
    return 0


class FarDoctor:
    """Reads lines, and runs one examination in a child."""

    def __init__(self, task: str, rest: bytes = b"") -> None:
        self._reader, self._splitter = LineReader(task), LineSplitter(rest)
        self._order: Examine | None = None
        self._sent: dict[str, str] = {}
        self._child: risky_calls.Running | None = None
        self._is_over = False

    def say(self, word: bytes, fields: dict[str, Any]) -> None:
        """Writes a line; while the operator does not read, blocks until the alarm."""
        self._write(described(word, fields))

    def run(self) -> None:
        """Serves until the operator leaves or stays silent for too long.

        Raises:
            LineError: a line is not part of the protocol.
            OSError: the operator no longer reads.
        """
        signal.alarm(int(SILENCE_S))
        self.say(b"frtop-hello", {**introduction(socket.gethostname()), "examines": True})
        self._take(b"")
        while not self._is_over:
            watched = [0, *([self._child.descriptor] if self._child is not None else [])]
            ready, _, _ = select.select(watched, [], [], 0.2)
            if 0 in ready:
                piece = os.read(0, _PIECE)
                self._is_over = not piece
                self._take(piece)
            self._begin_when_ready()
            self._answer_when_done()

    def end(self) -> None:
        """Ends the examination and every process that it started."""
        if self._child is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def _take(self, piece: bytes) -> None:
        for line in self._splitter.feed(piece):
            signal.alarm(int(SILENCE_S))
            match self._reader.read(line):
                case Ping(text):
                    self._write(b"frtop-pong " + text + b"\n")
                case SentTool(name, program):
                    self._keep(name, program)
                case Examine() as order:
                    self._order = self._order or order
                case Bye():
                    self._is_over = True

    def _keep(self, name: str, program: bytes) -> None:
        try:
            tool_process.provide(name, program_file.make(name, program))
        except OSError:  # the tier reports that no program runs from memory
            self._sent[name] = ""
        else:
            self._sent[name] = tool_process.find(name) or ""

    def _begin_when_ready(self) -> None:
        order = self._order
        if order is None or self._child is not None or (order.tool and not self._sent):
            return
        sent = {name: path for name, path in self._sent.items() if path}
        python = sys.executable if order.python else ""
        parent = os.getpid()

        def examine() -> dict[str, Any]:
            os.setsid()
            die_with(parent)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):  # a hanging child must not hold the shell's
                os.dup2(null, stream)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            return document(read_host(python, by_shell=True, sent=sent), find_ranks())

        self._child = risky_calls.start(examine, EXAMINE_S)

    def _answer_when_done(self) -> None:
        done = self._child.result() if self._child is not None else None
        if done is None:
            return
        self._child = None
        self._order = None
        if isinstance(done.value, dict):
            self.say(b"frtop-doctor", done.value)
            return
        how = f"in {EXAMINE_S:.0f} s" if done.timed_out else "there"
        text = f"the examination did not finish {how}"
        self.say(b"frtop-error", {"text": text, "next": _AGAIN})
        self._is_over = True

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(1, left) :]


def _leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - signal handler
    sys.exit(1)
