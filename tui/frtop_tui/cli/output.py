"""Standard output and standard error for commands, which print without checks of their own.

* A full disk, a reader that has left, a terminal that is gone: `print` fails, or the flush at the
end. Python would retry at exit, and print a traceback.
* An encoding that lacks letters of a job's name: these are escaped, as in JSON.
* A terminal: no text, wherever it is from, can control it.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, TextIO

NOT_WRITTEN: Final = 1
"""Exit status: part of the output was lost."""
ESCAPING: Final = "frtop-escaping"
"""Name of the handler of letters that an encoding lacks."""
_LOST: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.ESTALE, errno.ENXIO)
)


class TerminalOutput:
    """A stream to a terminal. Nothing that is written to it controls the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.unchanged = stream
        self.has_progress = False

    def write(self, text: str) -> int:
        lines = text.split("\n")
        if not all(map(str.isprintable, lines)):
            from frtop_tui.job.naming import printable  # noqa: PLC0415 - slow, and seldom needed

            lines = list(map(printable, lines))
        return self.unchanged.write("\n".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unchanged, name)


def _in_json(text: str) -> str:
    r"""`\u001b`; beyond 16 bits two of them, as JSON has it."""
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _escape_missing(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    # Our own figures have one letter beyond ASCII, and everybody reads "us".
    return "".join("u" if one == "µ" else _in_json(one) for one in missing), error.end


def prepare() -> None:
    """Sets up stdout and stderr, so that commands can print anything.

    A daemon may have closed them: then output is dropped, and no file or socket that is opened
    later gets their descriptors.
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
    """Whether stdout or stderr failed: errors about files name the file."""
    return error.filename is None and error.errno in _LOST


def give_up(error: OSError) -> int:
    """Reports lost output, unless its reader has left (`frtop diagnose | head`).

    Discards whatever is left in the buffers, and returns the exit status.
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
    """Columns of the terminal behind stderr; 80 if unknown."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):  # no terminal, or a replacement in Python
        return 80


def show_progress(line: str) -> None:
    """Replaces the line of progress on stderr; does nothing unless that is a terminal."""
    from frtop_tui.job.naming import printable  # noqa: PLC0415 - slow, not for every command
    from frtop_tui.terminal import moves_cursor  # noqa: PLC0415

    stream = sys.stderr
    if stream.isatty() and moves_cursor():
        text = printable(line)[: stderr_width() - 1]  # a line that wraps could not be replaced
        if isinstance(stream, TerminalOutput):
            stream.has_progress = bool(text)
        unchanged = getattr(stream, "unchanged", stream)
        print(f"\r\x1b[K{text}", end="", file=unchanged, flush=True)


def end_progress() -> None:
    """Removes the line of progress, if there is one."""
    if getattr(sys.stderr, "has_progress", False):
        show_progress("")


def for_terminal(rows: Iterable[str], indent: Callable[[str], int]) -> Iterator[str]:
    """Rows as a terminal takes them, with their words in one piece; unchanged elsewhere.

    `indent` says by how much the further lines of a row are indented.
    """
    if not sys.stdout.isatty():
        yield from rows
        return
    width = shutil.get_terminal_size().columns
    for row in rows:
        yield from textwrap.wrap(
            row, width, subsequent_indent=" " * indent(row), break_long_words=False,
            break_on_hyphens=False,
        ) or [""]  # fmt: skip


def say(*paragraphs: str) -> None:
    """Prints to stderr. A terminal gets whole words: paths and lists of ranks stay in one piece."""
    for text in paragraphs:
        rows = [text]
        if sys.stderr.isatty():
            rows = textwrap.wrap(
                text, stderr_width(), break_long_words=False, break_on_hyphens=False
            ) or [""]
        print(*rows, sep="\n", file=sys.stderr)
