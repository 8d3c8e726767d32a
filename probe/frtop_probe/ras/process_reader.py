"""The parent's side of the child that looks at a process (`__main__`), for asyncio.

One child per look: a person asks, seldom. One that does not answer is killed and left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from frtop_probe.proc import child_process

DEADLINE_S: Final = 5.0
"""A look takes 0.1 s; the rest is for a host whose cores are all busy."""
MAX_ANSWER: Final = 64 * 1024
DID_NOT_RETURN: Final = "a read of its memory maps did not return"
NO_ANSWER: Final = "the program that reads it ended without an answer"
_MODULE: Final = "frtop_probe.ras"


class ProcessLook(msgspec.Struct, frozen=True):
    """What a process has of NCCL. `library` is "" without libnccl; `reason`: it was not read."""

    pid: int
    start_ticks: int = 0
    own_pid: int = 0
    library: str = ""
    version: str = ""
    source: str = ""
    environment: dict[str, str] = {}
    reason: str = ""


_looks = msgspec.json.Decoder(ProcessLook)


async def look_at(
    pid: int, *, seconds: float = DEADLINE_S, command: Sequence[str] | None = None
) -> ProcessLook:
    """Looks at one process; `reason` says why it could not be read."""
    try:
        child = await asyncio.create_subprocess_exec(
            *(command or child_process.python_command(_MODULE)),
            str(pid),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=child_process.inherited(),
            start_new_session=True,  # an interrupt from the terminal is not for it
        )
    except OSError as error:
        return ProcessLook(pid, reason=f"the program that reads it did not start: {error.strerror}")
    try:
        assert child.stdout is not None
        answer = await asyncio.wait_for(child.stdout.read(MAX_ANSWER), seconds)
        return _looks.decode(answer)
    except (asyncio.TimeoutError, TimeoutError):
        return ProcessLook(pid, reason=DID_NOT_RETURN)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ProcessLook(pid, reason=NO_ANSWER)
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        # One that is stuck in a read dies when it can: nobody waits for that.
        with suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(child.wait(), 0.5)
