"""Reads logs of any size as a stream: most lines of a job's output are of no interest.

A line matters if it contains one of a few words. Blocks are searched for these, not lines: that is
ten times as fast. It is another ten times as fast to search only one line of each kind in a block.
A carriage return also ends a record: progress bars have no line ends.
"""

from __future__ import annotations

import gzip
import importlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from frtop_probe import archive
from frtop_tui.errors import Unreadable
from frtop_tui.job.naming import printable

BLOCK: Final = 1 << 20
MAX_RECORD: Final = 16_384
"""Of a longer record, we look at the beginning."""
_ENDLESS: Final = 1 << 20
"""A longer record is cut off there; the rest of it is not searched."""
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_HEAD: Final = 1 << 16
_DIGITS: Final = b"0123456789"
_NUL_IN: Final = 100
"""At most one byte in so many is NUL in a text."""
MAX_QUOTE: Final = 300
WATCHER: Final = re.compile(r'^\{"at": "[^"\n]{1,40}", "event": .*$', re.MULTILINE)
"""Lines of `frtop run --watch` in the job's output: they quote others, and count for nothing."""
_COLOURS: Final = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def _module_for_zstd() -> Any:
    """Python's own since 3.14, else the same one for earlier versions, if it is installed."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return importlib.import_module(name)
    return None


_zstd: Final = _module_for_zstd()


class RawLine(NamedTuple):
    """A record and the number of its line, from 1; `chosen` by one of the words."""

    number: int
    text: str
    chosen: bool


class LogLine(NamedTuple):
    """A line as it is quoted: its file, number and text."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {printable(self.text.strip())[:MAX_QUOTE]}"


def is_text(path: Path) -> bool:
    """Whether a file looks like text, also when it is compressed.

    Raises:
        OSError: it cannot be read.
    """
    with archive.open_file(path) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return False
        head = file.read(_HEAD)
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(31).decompress(head, _HEAD)
        except zlib.error:
            return False
    few = head.count(b"\0") * _NUL_IN <= len(head)  # a process that crashed may have written some
    return head.startswith(_ZSTD) or (b"\n" in head and few)


def lines_of(
    path: Path,
    words: Sequence[bytes],
    wants_all: Callable[[], bool],
    passed: Callable[[int], None] = lambda _: None,
    seconds: Sequence[bytes] = (),
) -> Iterator[RawLine]:
    """Lines of a file that contain one of `words`; all lines while `wants_all()`.

    Of those with one of the `seconds`, the line before counts as well, if it is in the same block.
    `passed` is told how many bytes of the file have been read so far.

    Raises:
        Unreadable: it cannot be read, or is compressed and nothing here unpacks it.
    """
    errors = (OSError, EOFError, zlib.error, *([_zstd.ZstdError] if _zstd is not None else ()))
    try:
        with archive.open_file(path) as file:
            stream = _opened(file, path)
            yield from searched(
                stream, words, wants_all, lambda: passed(file.tell()), seconds=seconds
            )
    except errors as error:
        text = f"{path} cannot be read to its end: {getattr(error, 'strerror', None) or error}"
        raise Unreadable(text, "copy the file again, or name another one") from error


def _opened(file: BinaryIO, path: Path) -> BinaryIO:
    head = file.peek(4)[:4]  # type: ignore[attr-defined]
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if not head.startswith(_ZSTD):
        return file
    if _zstd is None:
        step = f"pip install backports.zstd, or: zstd -dc {path.name} | frtop diagnose -"
        raise Unreadable(f"{path} is compressed by zstd, which this Python does not read", step)
    unpacked: BinaryIO = _zstd.ZstdFile(file)
    return unpacked


def searched(
    stream: BinaryIO,
    words: Sequence[bytes],
    wants_all: Callable[[], bool],
    passed: Callable[[], None] = lambda: None,
    *,
    block: int = BLOCK,
    seconds: Sequence[bytes] = (),
) -> Iterator[RawLine]:
    """The same for an open stream, such as a pipe, in reads of `block` bytes."""
    number, rest, skips = 1, b"", False
    while data := stream.read(block):
        passed()
        if skips:  # the rest of an endless record
            end = _first_end(data)
            if end < 0:
                continue
            data, skips = data[end:], False
        data = rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        rest = data[end:]
        if end:
            yield from _of_block(data, end, number, wants_all, _starts(data, end, words, seconds))
            number += data.count(b"\n", 0, end)
        if len(rest) > _ENDLESS:
            yield from _of_block(
                rest, _ENDLESS, number, wants_all, _starts(rest, _ENDLESS, words, seconds)
            )
            rest, skips = b"", True
    if rest:
        yield from _of_block(
            rest, len(rest), number, wants_all, _starts(rest, len(rest), words, seconds)
        )


def _first_end(data: bytes) -> int:
    """Where the first record ends; -1 if not in `data`."""
    ends = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
    return min(ends, default=-1)


def _of_block(
    data: bytes,
    end: int,
    number: int,
    wants_all: Callable[[], bool],
    starts: Sequence[int],
) -> Iterator[RawLine]:
    """The records in `data[:end]` that begin at `starts`; the first of all is in line `number`."""
    at = 0  # where the next record begins
    for start in [*starts, end]:
        while at < start and wants_all():
            after = _record_end(data, at, end)
            yield RawLine(number, _text(data, at, after), chosen=False)
            number += data[after : after + 1] == b"\n"
            at = after + 1
        if at < start:
            number += data.count(b"\n", at, start)
            at = start
        if start < end:
            after = _record_end(data, start, end)
            yield RawLine(number, _text(data, start, after), chosen=True)
            number += data[after : after + 1] == b"\n"
            at = after + 1


def _starts(data: bytes, end: int, words: Sequence[bytes], seconds: Sequence[bytes]) -> list[int]:
    """Where records begin that contain one of the words, or come before one of the `seconds`."""
    found: set[int] = set()
    for word in _likely(data, (*words, *seconds)):
        at = data.find(word, 0, end)
        while at >= 0:
            line = data.rfind(b"\n", 0, at) + 1
            found.add(max(line, data.rfind(b"\r", line, at) + 1))
            if line and word in seconds:
                found.add(data.rfind(b"\n", 0, line - 1) + 1)
            at = data.find(word, _record_end(data, at, end), end)
    return sorted(found)


def _likely(data: bytes, words: Sequence[bytes]) -> list[bytes]:
    """Those of the words that may be there: most lines of a log differ only in their numbers."""
    first = data[:_HEAD].translate(None, _DIGITS).split(b"\n")
    if 2 * len({*first}) > len(first):  # it would take longer to find out
        return [*words]
    kinds = b"\n".join({*data.translate(None, _DIGITS).split(b"\n")})
    return [word for word in words if word.translate(None, _DIGITS) in kinds]


def _record_end(data: bytes, at: int, end: int) -> int:
    after = data.find(b"\n", at, end)
    after = end if after < 0 else after
    carriage = data.find(b"\r", at, after)
    return after if carriage < 0 else carriage


def _text(data: bytes, start: int, end: int) -> str:
    record = data[start : min(end, start + MAX_RECORD)]
    if b"\x1b" in record:
        record = _COLOURS.sub(b"", record)
    return record.decode("utf-8", "replace")
