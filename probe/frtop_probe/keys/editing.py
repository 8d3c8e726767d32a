"""Changes to the lists beside the key file, safe against concurrent changes.

Comments, lines that cannot be parsed, and the order of lines are preserved.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from frtop_probe import atomic_file
from frtop_probe.keys.lists import (
    AUTHORIZED,
    TRUSTED,
    AuthorizedKey,
    TrustedKey,
    format_authorized,
    format_trusted,
    lines_of,
    parse_authorized,
    parse_trusted,
)
from frtop_probe.keys.pair import KeyPair, KeyProblem

_LOCK_TIMEOUT_S: Final = 10.0
Entry = TypeVar("Entry", AuthorizedKey, TrustedKey)


def admit(pair: KeyPair, entry: AuthorizedKey) -> AuthorizedKey:
    """Admits a key, or changes its right; returns the new entry.

    An entry without a name keeps the name it has in the list.

    Raises:
        KeyProblem: the list cannot be changed, or others can write it.
    """
    return _put(pair, AUTHORIZED, entry, parse_authorized, format_authorized)


def trust(pair: KeyPair, entry: TrustedKey) -> TrustedKey:
    """Trusts the agents of another user; otherwise like `admit`."""
    return _put(pair, TRUSTED, entry, parse_trusted, format_trusted)


def _put(
    pair: KeyPair,
    name: str,
    entry: Entry,
    parse: Callable[[str], Entry | None],
    write: Callable[[Entry], str],
) -> Entry:
    file = pair.path.with_name(name)
    with _locked(pair):
        lines = lines_of(file)
        for known in map(parse, lines):
            if known is not None and known.public == entry.public and not entry.name:
                entry = replace(entry, name=known.name)
        _write(file, _changed(lines, entry.public, write(entry)))
    return entry


def remove(pair: KeyPair, public: bytes) -> tuple[str, ...]:
    """Removes a key from both lists; returns the names of the lists that had it.

    Raises:
        KeyProblem: as for `admit`.
    """
    found = []
    with _locked(pair):
        for name in (AUTHORIZED, TRUSTED):
            file = pair.path.with_name(name)
            lines = lines_of(file)
            left = _changed(lines, public, None)
            if left != lines:
                _write(file, left)
                found.append(name)
    return tuple(found)


def find_by_name(pair: KeyPair, name: str) -> tuple[bytes, ...]:
    """The public keys with this name in either list, even when other lines are broken.

    Raises:
        KeyProblem: a list cannot be read, or others can write it.
    """
    admitted = map(parse_authorized, lines_of(pair.path.with_name(AUTHORIZED)))
    trusted = map(parse_trusted, lines_of(pair.path.with_name(TRUSTED)))
    entries = [entry for entry in (*admitted, *trusted) if entry is not None]
    return tuple(dict.fromkeys(entry.public for entry in entries if entry.name == name))


def _changed(lines: list[str], public: bytes, new: str | None) -> list[str]:
    """`lines` with `new` in place of the key's first line, or at the end if it has none."""
    left = []
    for line in lines:
        known = parse_trusted(line)  # the first word is a key in both lists
        if known is None or known.public != public:
            left.append(line)
        elif new is not None:
            left.append(new + _comment(line))
            new = None
    return left if new is None else [*left, new]


def _comment(line: str) -> str:
    """The comment at the end of a line, with two blanks before it; a key may contain #."""
    rest = line.strip().partition(" ")[2]
    at = rest.find("#") if rest.startswith("#") else rest.find(" #") + 1
    return f"  {rest[at:]}" if rest[at : at + 1] == "#" else ""


@contextmanager
def _locked(pair: KeyPair) -> Iterator[None]:
    """Locks the key file while the lists change; unlike them, it is never replaced."""
    writable = os.access(pair.path, os.W_OK)  # NFS locks need it
    try:
        descriptor = os.open(pair.path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise _unchangeable(pair.path, error) from error
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    try:
        while not _lock(pair.path, descriptor):
            if time.monotonic() > deadline:
                raise KeyProblem(
                    f"another program holds {pair.path} locked", "try again when it has ended"
                )
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _lock(file: Path, descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise _unchangeable(file, error) from error
        return False
    return True


def _write(file: Path, lines: list[str]) -> None:
    target = Path(os.path.realpath(file))  # the list may be a link into a repository

    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    try:
        atomic_file.write(target, content)
    except OSError as error:
        raise _unchangeable(file, error) from error


def _unchangeable(file: Path, error: OSError) -> KeyProblem:
    return KeyProblem(
        f"{file} cannot be changed: {error.strerror}",
        f"make {file.parent} writable for this user, or edit the list by hand",
    )
