"""Call stacks of a Python process that need not answer: py-spy, with a deadline.

Never with the target stopped (`--nonblocking`): a torch process has hundreds of threads,
and a job that is only slow must not be hurt by being looked at.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from frtop_probe import wire
from frtop_probe.eyes import proc, refusal
from frtop_probe.eyes.source import SourceReader

MAX_OUTPUT: Final = 16 * 1024 * 1024
MAX_THREADS: Final = 512
MAX_FRAMES: Final = 256
MAX_NAME: Final = 200
_REFUSED: Final = ("permission denied", "operation not permitted", "os error 1)", "os error 13)")
_GONE: Final = ("no such process", "os error 3)", "process not found")
_SOURCE_WAIT: Final = 0.2
_DYING: Final = 0.5


class _Frame(msgspec.Struct):
    name: str
    filename: str = ""
    line: int = 0
    module: str | None = None


class _Thread(msgspec.Struct):
    thread_id: int
    active: bool
    owns_gil: bool
    frames: list[_Frame]
    thread_name: str | None = None
    os_thread_id: int | None = None


_threads = msgspec.json.Decoder(list[_Thread])


def program() -> str | None:
    """The py-spy to use: the one installed beside this Python, else the one on the path."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def parse(data: bytes, pid: int = 0) -> tuple[wire.ThreadStack, ...]:
    """Parses the output of `py-spy dump --json`.

    Before Python 3.11 threads do not know their native ids, so that a dump that does not
    stop them has none (and calls all of them active); that of the main thread is `pid`. The
    main thread comes first, however many there are: py-spy lists the newest first.

    Raises:
        msgspec.DecodeError: it is something else.
    """
    found = sorted(
        _threads.decode(data),
        key=lambda thread: (thread.os_thread_id != pid, thread.thread_name != "MainThread"),
    )
    return tuple(
        wire.ThreadStack(
            ident=thread.thread_id,
            tid=thread.os_thread_id or (pid if thread.thread_name == "MainThread" else 0),
            name=(thread.thread_name or "")[:MAX_NAME],
            active=thread.active,
            owns_gil=thread.owns_gil,
            frames=tuple(
                wire.TraceFrame(
                    function=frame.name,
                    file=frame.filename,
                    line=frame.line,
                    module=frame.module or "",
                )
                for frame in thread.frames[:MAX_FRAMES]
            ),
        )
        for thread in found[:MAX_THREADS]
    )


def existing(
    threads: tuple[wire.ThreadStack, ...], tasks: Collection[int]
) -> tuple[wire.ThreadStack, ...]:
    """Without those that a process does not have: `tasks` are the native ids of its threads.

    A child that is still inside `fork()` has the books of its parent's threads, with their
    stacks, but not the threads.
    """
    if not any(thread.tid in tasks for thread in threads):
        return threads  # it has ended since
    nameless = len(tasks) > 1  # there may be some of which only the native id is not known
    return tuple(t for t in threads if t.tid in tasks or (nameless and not t.tid))


async def dump(pid: int, seconds: float, source: SourceReader | None = None) -> wire.StackDump:
    """The stacks of one process, or the reason why there are none."""
    if proc.stat(pid) is None:
        return _gone(pid)
    spy = program()
    if spy is None:
        return wire.StackDump(
            pid,
            error="missing",
            help="py-spy is not installed beside the agent: `pip install py-spy`",
        )
    try:
        child = await _start(spy, pid)
    except OSError as error:
        return wire.StackDump(pid, error="failed", help=f"{spy} cannot be run: {error.strerror}")
    try:
        output, complaint = await asyncio.wait_for(_outputs(child), seconds)
    except (asyncio.TimeoutError, TimeoutError):
        return wire.StackDump(
            pid,
            error="deadline",
            help=f"py-spy had not read process {pid} after {seconds:.1f} s: the host is "
            "overloaded, or its files cannot be read; ask again",
        )
    finally:
        await _end(child)
    answer = _answer(pid, child.returncode, output, complaint)
    if source is not None and answer.threads:
        return wire.StackDump(pid, await _with_source(answer.threads, source))
    return answer


def _answer(pid: int, status: int | None, output: bytes, complaint: bytes) -> wire.StackDump:
    if status != 0:
        return _failure(pid, complaint.decode("utf-8", "replace"))
    try:
        return wire.StackDump(pid, existing(parse(output, pid), proc.tasks(pid)))
    except msgspec.DecodeError as error:
        return wire.StackDump(
            pid, error="failed", help=f"py-spy's answer was not understood: {error}"
        )


async def _start(spy: str, pid: int) -> asyncio.subprocess.Process:
    """Starts py-spy; when cancelled meanwhile, it is ended, not lost sight of."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            spy, "dump", "--json", "--nonblocking", "--pid", str(pid),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    )  # fmt: skip
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise


async def _end(child: asyncio.subprocess.Process) -> None:
    """Kills it if need be, and lets the loop see the end of it and of its pipes.

    One that cannot even die, because a file system hangs, is left behind.
    """
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.kill()
    with suppress(asyncio.TimeoutError, TimeoutError):
        await asyncio.wait_for(child.communicate(), _DYING)


async def _outputs(child: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """What it wrote, bounded; a program that writes more is not py-spy and is ended."""

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

    output, complaint = await asyncio.gather(
        limited(child.stdout, MAX_OUTPUT), limited(child.stderr, 65536)
    )
    await child.wait()
    return output, complaint


def _gone(pid: int) -> wire.StackDump:
    return wire.StackDump(pid, error="gone", help=f"process {pid} has ended: no stacks any more")


def _failure(pid: int, complaint: str) -> wire.StackDump:
    """What py-spy said, in the user's words: `complaint` is its standard error."""
    said = complaint.lower()
    found = proc.stat(pid)
    if found is None or found.state in "ZX" or any(word in said for word in _GONE):
        return _gone(pid)
    if any(word in said for word in _REFUSED):
        return wire.StackDump(pid, error="refused", help=refusal.explain(pid))
    line = next((line.strip() for line in complaint.splitlines() if line.strip()), "no reason")
    text = line.removeprefix("Error: ")[:300]
    return wire.StackDump(pid, error="failed", help=f"py-spy: {text}")


async def _with_source(
    threads: tuple[wire.ThreadStack, ...], source: SourceReader
) -> tuple[wire.ThreadStack, ...]:
    files = {frame.file for thread in threads for frame in thread.frames if frame.file[:1] == "/"}
    source.ask(files)
    loop = asyncio.get_running_loop()
    end = loop.time() + _SOURCE_WAIT
    while not source.ready(files) and loop.time() < end:
        await asyncio.sleep(0.005)
    return tuple(
        msgspec.structs.replace(
            thread,
            frames=tuple(
                msgspec.structs.replace(frame, source=source.line(frame.file, frame.line))
                for frame in thread.frames
            ),
        )
        for thread in threads
    )
