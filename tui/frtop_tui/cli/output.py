"""Output that cannot be written: a full disk, a reader that has left, a terminal that is gone.

Commands print, and do not care. What fails shows in `print` or, later, when the buffers are
written; Python would write them once more at the exit, and complain with a traceback.
"""

from __future__ import annotations

import errno
import os
import sys
import textwrap
from contextlib import suppress
from typing import Final

NOT_WRITTEN: Final = 1
"""Exit status: whoever reads the output has less than the status would promise."""
_LOST: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.ESTALE, errno.ENXIO)
)


def replace_closed() -> None:
    """Gives commands streams to print to where a daemon has closed them: what is printed is lost.

    Otherwise the next file or socket would get their descriptors.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - until the exit


def flush() -> None:
    """Writes out what was printed.

    Raises:
        OSError: it cannot be written.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def is_lost(error: OSError) -> bool:
    """Whether this is of standard output or standard error: errors of files name the file."""
    return error.filename is None and error.errno in _LOST


def give_up(error: OSError) -> int:
    """Says that output was lost, unless its reader has left (`frtop diagnose | head`).

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
