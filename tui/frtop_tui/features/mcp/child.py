"""Runs `frtop VERB --json` as a child, so that an answer is what the command prints.

A child may hang, or print anything: it has a time limit, its output is bounded, and it never sees
the protocol's streams. It is ended with its whole group when the client cancels or leaves, and
by the kernel if this process is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
from anyio.abc import ByteReceiveStream, Process

from frtop_tui.features.mcp.answer import error_text
from frtop_tui.features.mcp.tools import shown

LIMIT_S: Final = 120.0
"""Longer than a command waits for hosts to be reached, and then for a verdict."""
MOST_BYTES: Final = 64 << 20
"""Of a document, before it is cut. The diagnosis of 4,096 ranks has 0.8 MB."""
MOST_AT_ONCE: Final = 4
_PROGRAM: Final = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit(1)
from frtop_tui.__main__ import run
run()
"""
"""Ends with the server, however that ends."""
_GRACE_S: Final = 2.0
"""Between SIGTERM and SIGKILL."""


class NoAnswerError(Exception):
    """A command had nothing to print; the text says why, and what to do next."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command printed, and its exit status."""

    document: Any
    exit_status: int


class Commands:
    """Runs commands, a few at a time."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._free = anyio.Semaphore(MOST_AT_ONCE)

    async def run(self, words: Sequence[str]) -> Printed:
        """The document that the command prints.

        Raises:
            NoAnswerError: it printed none, or too much, or took too long.
        """
        async with self._free:
            with anyio.CancelScope(shield=True):  # else nobody would end it
                process = await anyio.open_process(
                    [sys.executable, "-c", _PROGRAM, str(os.getpid()), *words],
                    stdin=subprocess.DEVNULL,
                    cwd="/",  # a module in the client's folder must not shadow ours
                    start_new_session=True,
                )
            out, err = bytearray(), bytearray()
            try:
                with anyio.fail_after(self._limit_s):
                    await _read(process, out, err)
            except TimeoutError:
                raise NoAnswerError(
                    f"no answer within {self._limit_s:g} s\n  next: {shown(words)}"
                ) from None
            finally:
                await _end(process)
        if len(out) > MOST_BYTES:
            raise NoAnswerError(
                f"the answer exceeds {MOST_BYTES >> 20} MiB\n  next: {shown(words)} > FILE"
            )
        try:
            document = json.loads(out)
        except (ValueError, RecursionError):
            text = error_text(err.decode(errors="replace"))
            raise NoAnswerError(text or f"`{shown(words)}` printed nothing") from None
        return Printed(document, process.returncode or 0)


async def _read(process: Process, out: bytearray, err: bytearray) -> None:
    """Reads both until they end; of standard output no more than the limit."""

    async def read(stream: ByteReceiveStream, into: bytearray) -> None:
        async for data in stream:
            into += data
            if len(into) > MOST_BYTES:
                return

    assert process.stdout is not None
    assert process.stderr is not None
    async with anyio.create_task_group() as group:
        group.start_soon(read, process.stdout, out)
        group.start_soon(read, process.stderr, err)
    if len(out) <= MOST_BYTES:
        await process.wait()


async def _end(process: Process) -> None:
    """Ends it and what it started, even while this task is cancelled."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with anyio.move_on_after(_GRACE_S):
                await process.wait()
        if process.returncode is None:
            _signal(process, signal.SIGKILL)
        await process.aclose()


def _signal(process: Process, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
