"""Finds, starts and ends programs that take stacks for the agent, with bounded output.

Where nothing can be installed, an operator sends a program: a file without a name, reached through
the path of our descriptor.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from frtop_probe.proc import child_process
from frtop_probe.proc.within import within

MAX_OUTPUT: Final = 16 * 1024 * 1024
_MAX_ERRORS: Final = 65536
_KILL_TIMEOUT: Final = 0.5


_sent: dict[str, str] = {}
"""Paths of programs that were sent; "" while a program is on its way."""


def find(name: str) -> str | None:
    """A program's path: the sent one, else the one beside this Python, else the one on PATH."""
    if path := _sent.get(name):  # no usable one was installed
        return path
    beside = Path(sys.executable).with_name(name)
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def why_missing(name: str) -> str:
    """Why `find` found nothing, and what to do."""
    if name in _sent:
        return f"{name} is still on its way to this host: try again in a few seconds"
    return f"{name} is not installed beside the agent: `pip install {name}`"


def expect(name: str) -> None:
    """Notes that a program is on its way."""
    _sent.setdefault(name, "")


def provide(name: str, descriptor: int) -> None:
    """Makes `find` return a program that was sent; the descriptor stays open."""
    _sent[name] = f"{child_process.DESCRIPTORS}{descriptor}"


async def start(*command: str, dies_with_us: bool = False) -> asyncio.subprocess.Process:
    """Starts a program; kills it if the caller is cancelled meanwhile.

    With `dies_with_us` the kernel kills it when this process ends for any reason. Costs 20 ms.
    """
    program, *arguments = command
    # A program that was sent has no path, but `ps` should show its name.
    words = [next((name for name, path in _sent.items() if path == program), program), *arguments]
    if dies_with_us:
        words = [*child_process.mortal_command(program), *words]
        program = sys.executable
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *words,
            executable=program,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=child_process.descriptors_in(command),
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await end(await starting)
        raise


async def end(child: asyncio.subprocess.Process) -> None:
    """Kills a program if it runs, and waits until the event loop has closed its pipes.

    A process that cannot die, because a file system hangs, is abandoned.
    """
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.kill()
    with suppress(TimeoutError):
        await within(_KILL_TIMEOUT, child.communicate())


async def read_outputs(child: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Reads a program's output and errors; kills it if it writes more than expected."""

    async def limited(stream: asyncio.StreamReader | None, most: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while stream is not None and (part := await stream.read(65536)):
            size += len(part)
            if size > most:
                child.kill()
                break
            parts.append(part)
        return b"".join(parts)

    output, errors = await asyncio.gather(
        limited(child.stdout, MAX_OUTPUT), limited(child.stderr, _MAX_ERRORS)
    )
    await child.wait()
    return output, errors
