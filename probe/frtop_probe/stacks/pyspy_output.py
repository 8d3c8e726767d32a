"""Decodes the output of `py-spy dump --json`."""

from __future__ import annotations

import msgspec

from frtop_probe.wire.values import Int


class Variable(msgspec.Struct):
    """A local variable; only in output of `--locals`."""

    name: str
    repr: str | None = None


class CallFrame(msgspec.Struct):
    """A frame. With `--native`, C frames have their library as `module`."""

    name: str
    filename: str = ""
    line: Int = 0
    module: str | None = None
    variables: list[Variable] | None = msgspec.field(default=None, name="locals")


class Thread(msgspec.Struct):
    """A thread, innermost frame first. `thread_id` is its pthread handle."""

    thread_id: int
    active: bool
    owns_gil: bool
    frames: list[CallFrame]
    pid: Int = 0
    thread_name: str | None = None
    os_thread_id: Int | None = None


_threads = msgspec.json.Decoder(list[Thread])


def decode(data: bytes) -> list[Thread]:
    """Decodes the threads of a process.

    Raises:
        msgspec.DecodeError: `data` is not such output.
    """
    return _threads.decode(data)
