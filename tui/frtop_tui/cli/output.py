"""Standard output and standard error for commands, which print without checks of their own.

* A full disk, a reader that has left, a terminal that is gone: what fails shows in `print` or,
  later, when the buffers are written; Python would write them once more at the exit, and complain
  with a traceback.
* An encoding without the letters of a job's name: these are escaped, as in JSON.
* A terminal: nothing that is printed controls it, whoever a text comes from.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import textwrap
from contextlib import suppress
from typing import Any, Final, TextIO

NOT_WRITTEN: Final = 1
"""Exit status: the reader got less output than the status would promise."""
ESCAPING: Final = "frtop-escaping"
"""Name of the handler of letters that an encoding lacks."""
_LOST: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.ESTALE, errno.ENXIO)
)


class TerminalOutput:
    """A stream to a terminal. It escapes everything that would control the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.unescaped = stream

    def write(self, text: str) -> int:
        return self.unescaped.write(escaped(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


def escaped(text: str) -> str:
    """Escapes what cannot be printed, as in JSON; line breaks stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _in_json(one) for one in text)


def _in_json(text: str) -> str:
    r"""`\u001b`; beyond 16 bits two of them, as JSON has it."""
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _escape_missing(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    # The one letter beyond ASCII in our own figures has a spelling that everybody reads.
    return "".join("u" if one == "µ" else _in_json(one) for one in missing), error.end


def prepare() -> None:
    """Gives commands streams that they can print anything to.

    Where a daemon has closed them, what is printed is lost. Otherwise the next file or socket would
    get their descriptors.
    """
    codecs.register_error(ESCAPING, _escape_missing)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - until the exit
            continue
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPING)
        if stream.isatty():
            setattr(sys, name, TerminalOutput(stream))
            sys.excepthook = _print_plainly


def _print_plainly(*error: Any) -> None:
    """Python's own hook uses colours on a terminal."""
    import traceback  # noqa: PLC0415 - slow, and seldom needed

    traceback.print_exception(*error)


def flush() -> None:
    """Writes out what was printed.

    Raises:
        OSError: it cannot be written.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def is_lost(error: OSError) -> bool:
    """Whether this error is of standard output or standard error; those of files name the file."""
    return error.filename is None and error.errno in _LOST


def give_up(error: OSError) -> int:
    """Reports that output was lost, unless its reader has left (`frtop diagnose | head`).

    Nothing more is written to the stream that failed. Returns the exit status.
    """
    if not isinstance(error, BrokenPipeError):
        with suppress(OSError, ValueError):
            print(
                f"frtop: not all of the output was written: {error.strerror}"
                " (make room, or write it to another place)",
                file=sys.stderr,
                flush=True,
            )
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            with suppress(OSError, ValueError):  # a stream without a descriptor
                os.dup2(null, stream.fileno())
            os.close(null)
    return NOT_WRITTEN


def stderr_width() -> int:
    """Returns the columns of the terminal behind stderr; 80 where that is unknown."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):  # no terminal, or a replacement in Python
        return 80


def say(*paragraphs: str) -> None:
    """Prints to stderr; on a terminal no word is broken, and no list of ranks or path."""
    for text in paragraphs:
        rows = [text]
        if sys.stderr.isatty():
            rows = textwrap.wrap(
                text, stderr_width(), break_long_words=False, break_on_hyphens=False
            ) or [""]
        print(*rows, sep="\n", file=sys.stderr)
