"""Reads a dump file as plain values: the only module that unpickles.

A pickle is a program. Its opcodes are checked before it runs (`pickle_check`), and the
unpickler then imports nothing. The size of the file bounds memory and time.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from frtop_tui.errors import Unreadable
from frtop_tui.files.bounded_read import read_bounded, read_head
from frtop_tui.files.flightrecorder.bundle import (
    MAX_RESPONSE,
    RawDump,
    dumps_in_page,
    dumps_in_values,
    is_page,
)
from frtop_tui.files.flightrecorder.pickle_check import (
    UnsafePickle,
    check_pickle,
    with_named_pairs,
)
from frtop_tui.files.flightrecorder.pickle_trim import trim_pickle

MAX_PICKLE: Final = 24 * 1024 * 1024
"""Five times a ring of 20,000 entries with stacks. The values take up to 60 times as much."""
MAX_JSON: Final = MAX_RESPONSE
_AS_TEXT: Final = re.compile(rb'\s*(?:[{<]|\[\s*(?:[\[{"\]]|$))')
"""JSON, or a page; lines of a log often begin with `[`, too."""
MAX_PAGE: Final = 256 * 1024 * 1024
"""A page of the debug server holds the dumps of all ranks."""
_NEXT: Final = "copy the file again from where it was written, or leave it out"
_UNPICKLING_ERRORS: Final = (
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
"""What the unpickler raises on damaged pickles."""


def read_dumps(path: Path, keep: int | None = None) -> Iterator[RawDump]:
    """Reads all dumps of a file, which may hold those of several ranks.

    Args:
        path: the file.
        keep: in a long dump, read only the newest `keep` entries and the few others that
        `pickle_trim` keeps, if it can find them without unpickling everything.

    Raises:
        Unreadable: the file cannot be read, is too large, is damaged, or is not a dump.
    """
    data = read_bounded(path, _limit, "a dump", _NEXT)
    if not data:
        raise Unreadable(f"{path} is empty", _NEXT)
    if is_page(data):
        count = 0
        for dump in dumps_in_page(data):
            count += 1
            yield dump
        if count:
            return
    else:
        yield from dumps_in_values(_values(path, data, keep))
        return
    raise Unreadable(f"{path} is an HTML page without dumps of ranks", _NEXT)


def _values(path: Path, data: bytes, keep: int | None) -> Any:
    try:
        if data[:1] == b"\x80":
            return _unpickled(data, keep)
        if data.lstrip()[:1] in (b"{", b"["):
            return msgspec.json.decode(data)
    except UnsafePickle as error:
        raise Unreadable(f"{path} is a pickle, but not a dump: {error}", _NEXT) from error
    except _UNPICKLING_ERRORS as error:
        raise Unreadable(f"{path} is damaged or not a dump ({_brief(error)})", _NEXT) from error
    raise Unreadable(f"{path} is not a dump: it is neither a pickle nor JSON", _NEXT)


def may_be_dump(path: Path) -> bool:
    """Whether a file begins as a dump may. Raises OSError if it cannot be read."""
    head = read_head(path)
    return head[:1] == b"\x80" or _AS_TEXT.match(head) is not None


def _limit(head: bytes) -> int:
    """The size limit of a file with this beginning."""
    if is_page(head):
        return MAX_PAGE
    return MAX_PICKLE if head[:1] == b"\x80" else MAX_JSON


def _unpickled(data: bytes, keep: int | None) -> Any:
    trimmed = trim_pickle(data, keep) if keep is not None else None
    if trimmed is not None:
        try:
            return _load(trimmed)
        except _UNPICKLING_ERRORS:
            pass  # it refers to a text in a removed entry
    return _load(data)


def _load(data: bytes) -> Any:
    named = with_named_pairs(data)
    if named is not None:
        try:
            return _PairUnpickler(io.BytesIO(named)).load()
        except _UNPICKLING_ERRORS:
            pass  # damaged, or with a pair of other values
    check_pickle(data)
    return _Unpickler(io.BytesIO(data)).load()


class _Unpickler(pickle.Unpickler):
    """Refuses every reference: to a class, a function, or a persistent object."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: object, /) -> NoReturn:  # noqa: ARG002
        raise pickle.UnpicklingError("it names an object outside the pickle")


class _PairUnpickler(_Unpickler):
    """Returns the two texts that name a global (`with_named_pairs`)."""

    def find_class(self, module: str, name: str, /) -> tuple[str, str]:  # type: ignore[override]
        return module, name


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:120] if text else type(error).__name__
