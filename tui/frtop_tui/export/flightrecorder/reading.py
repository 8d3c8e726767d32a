"""One dump's file as plain values: the only place where anything is unpickled.

A pickle is a program. Before it runs its opcodes are checked (`opcodes`), and what then
runs refuses every global all the same. The size of the file bounds the rest.
"""

from __future__ import annotations

import io
import os
import pickle
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from frtop_probe import archive
from frtop_tui.errors import Unreadable
from frtop_tui.export.flightrecorder.excerpt import excerpt
from frtop_tui.export.flightrecorder.opcodes import ForeignOpcode, check
from frtop_tui.export.flightrecorder.pages import MAX_ANSWER, Part, is_page, parts_of, parts_of_page

MAX_PICKLE: Final = 24 * 1024 * 1024
"""A ring of 20,000 with stacks is a fifth of it. What is unpacked is up to 60 times as large."""
MAX_JSON: Final = MAX_ANSWER
MAX_PAGE: Final = 256 * 1024 * 1024
"""A page of the debug server holds a dump of every rank."""
_NEXT: Final = "copy the file again from where it was written, or leave it out"
_REFUSED: Final = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
)
"""What the unpickler raises on what is no dump."""


def values_of(path: Path, keep: int | None = None) -> Any:
    """What the file says, as plain values of unknown shape.

    Of a long dump no more than its newest `keep` entries and those that matter besides
    (`excerpt`), where they can be found without reading it all.

    Raises:
        Unreadable: it cannot be read, is too large, damaged, or no dump at all.
    """
    return next(parts_in(path, keep)).values


def parts_in(path: Path, keep: int | None = None) -> Iterator[Part]:
    """The same where one file may hold the dumps of several ranks, one after the other.

    Raises:
        Unreadable: it cannot be read, is too large, damaged, or no dump at all.
    """
    data = _bytes(path)
    if is_page(data):
        count = 0
        for part in parts_of_page(data):
            count += 1
            yield part
        if count:
            return
    else:
        yield from parts_of(_values(path, data, keep))
        return
    raise Unreadable(f"{path} is a page, but none with the dumps of ranks", _NEXT)


def _values(path: Path, data: bytes, keep: int | None) -> Any:
    try:
        if data[:1] == b"\x80":
            return _unpickled(data, keep)
        if data.lstrip()[:1] in (b"{", b"["):
            return msgspec.json.decode(data)
    except ForeignOpcode as error:
        raise Unreadable(f"{path} is a pickle, but no dump: {error}", _NEXT) from error
    except _REFUSED as error:
        raise Unreadable(f"{path} is damaged, or no dump ({_brief(error)})", _NEXT) from error
    raise Unreadable(f"{path} is no dump: neither a pickle nor JSON", _NEXT)


def looks_like(path: Path) -> bool:
    """Whether a file begins as a dump may. Raises OSError when it cannot be read."""
    with archive.open_file(path) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return False
        head = file.read(64)
    return head[:1] == b"\x80" or head.lstrip()[:1] in (b"{", b"[", b"<")


def _bytes(path: Path) -> bytes:
    try:
        with archive.open_file(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable(f"{path} is no file", _NEXT)
            most = MAX_PAGE if is_page(file.peek(64)) else MAX_JSON
            data = file.read(min(status.st_size, most) + 1)  # so much is set aside
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}", _NEXT) from error
    if not data:
        raise Unreadable(f"{path} is empty", _NEXT)
    most = MAX_PICKLE if data[:1] == b"\x80" else most
    if len(data) > most:
        raise Unreadable(f"{path} is larger than any dump ({most >> 20} MB)", _NEXT)
    return data


def _unpickled(data: bytes, keep: int | None) -> Any:
    part = excerpt(data, keep) if keep is not None else None
    if part is not None:
        try:
            return _plain(part)
        except _REFUSED:
            pass  # it lacks a text that was told elsewhere
    return _plain(data)


def _plain(data: bytes) -> Any:
    check(data)
    return _Unpickler(io.BytesIO(data)).load()


class _Unpickler(pickle.Unpickler):
    """Names nothing: no class, no function, nothing kept elsewhere."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: object, /) -> NoReturn:  # noqa: ARG002
        raise pickle.UnpicklingError("it names what is kept elsewhere")


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:120] if text else type(error).__name__
