"""The last lines that ranks and their launchers wrote to files."""

from __future__ import annotations

from frtop_probe.wire.declaration import Response
from frtop_probe.wire.values import Int, Real, Value


class OutputFile(Value, frozen=True):
    """Where one or more streams of a rank or its launcher go, and the last text there.

    `streams` are some of "stdout", "stderr", "launcher's stdout", "launcher's stderr",
    "stdout through tee". `text` is
    the end of the file, which has `size` bytes and was last written `quiet_s` before it was read.
    `error` is one of "", "not a file", "permission", "gone" (deleted or replaced since the process
    ended), "deadline", "failed"; `help` is the message for the user.
    """

    path: str
    streams: tuple[str, ...]
    size: Int = -1
    text: str = ""
    quiet_s: Real = -1.0
    error: str = ""
    help: str = ""


class OutputResponse(Response, frozen=True, array_like=True, tag="output"):
    """The output of a rank and its launcher, as read at `at_ns`.

    `error` is one of "", "off", "gone", "busy", "deadline", "failed"; `help` is the message for the
    user.
    """

    host: str
    key: Int
    at_ns: Int
    files: tuple[OutputFile, ...] = ()
    error: str = ""
    help: str = ""
