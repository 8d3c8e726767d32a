"""Decodes the output of `py-spy dump --json`."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Variable(msgspec.Struct):
    """A local variable; only in output of `--locals`."""

    name: str
    repr: str | None = None


class CallFrame(msgspec.Struct):
    """A frame. With `--native`, C frames have their library as `module`."""

    name: str
    filename: str = ""
    line: _Number = 0
    module: str | None = None
    variables: list[Variable] | None = msgspec.field(default=None, name="locals")


class Thread(msgspec.Struct):
    """A thread, innermost frame first. `thread_id` is its pthread handle."""

    thread_id: int
    active: bool
    owns_gil: bool
    frames: list[CallFrame]
    pid: _Number = 0
    thread_name: str | None = None
    os_thread_id: _Number | None = None


_threads = msgspec.json.Decoder(list[Thread])


def decode(data: bytes) -> list[Thread]:
    """Decodes the threads of a process.

    Raises:
        msgspec.DecodeError: `data` is not such output.
    """
    return _threads.decode(data)
