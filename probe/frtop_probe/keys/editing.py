"""Changes to the lists beside the key file, one at a time, whoever else is at it.

What is not understood, comments, and the order of lines stay as they are.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from frtop_probe.keys.lists import (
    AUTHORIZED,
    TRUSTED,
    AuthorizedKey,
    TrustedKey,
    authorized_line,
    authorized_text,
    lines_of,
    trusted_line,
    trusted_text,
)
from frtop_probe.keys.pair import KeyPair, write_new
from frtop_probe.keys.problem import KeyProblem

_PATIENCE_S: Final = 10.0


def admit(pair: KeyPair, one: AuthorizedKey) -> AuthorizedKey:
    """Admits a key, or changes what it may do; gives what stands in the list now.

    Without a name it keeps the one that it has.

    Raises:
        KeyProblem: the list cannot be changed, or is not safe as it is.
    """
    file = pair.path.with_name(AUTHORIZED)
    with _locked(pair):
        lines = lines_of(file)
        for line in lines:
            known = authorized_line(line)
            if known is not None and known.public == one.public and not one.name:
                one = replace(one, name=known.name)
        _write(file, _changed(lines, one.public, authorized_text(one)))
    return one


def trust(pair: KeyPair, one: TrustedKey) -> TrustedKey:
    """Has the agents of another user looked at; otherwise as `admit`."""
    file = pair.path.with_name(TRUSTED)
    with _locked(pair):
        lines = lines_of(file)
        for line in lines:
            known = trusted_line(line)
            if known is not None and known.public == one.public and not one.name:
                one = replace(one, name=known.name)
        _write(file, _changed(lines, one.public, trusted_text(one)))
    return one


def remove(pair: KeyPair, public: bytes) -> tuple[str, ...]:
    """Takes a key out of both lists; gives the names of those in which it was.

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


def named(pair: KeyPair, name: str) -> tuple[bytes, ...]:
    """The keys that go by this name in either list, also where other lines are broken.

    Raises:
        KeyProblem: a list cannot be read, or others could have written it.
    """
    admitted = map(authorized_line, lines_of(pair.path.with_name(AUTHORIZED)))
    trusted = map(trusted_line, lines_of(pair.path.with_name(TRUSTED)))
    found = [one for one in (*admitted, *trusted) if one is not None and one.name == name]
    return tuple(dict.fromkeys(one.public for one in found))


def _changed(lines: list[str], public: bytes, new: str | None) -> list[str]:
    """`lines` with `new` in the first place where the key stands, else at the end."""
    left = []
    for line in lines:
        known = trusted_line(line)  # the first word is a key in both lists
        if known is None or known.public != public:
            left.append(line)
        elif new is not None:
            left.append(new + _comment(line))
            new = None
    return left if new is None else [*left, new]


def _comment(line: str) -> str:
    """The comment at the end of a line, with a blank before it; a key may hold a #."""
    rest = line.strip().partition(" ")[2]
    at = rest.find("#") if rest.startswith("#") else rest.find(" #") + 1
    return f"  {rest[at:]}" if rest[at : at + 1] == "#" else ""


@contextmanager
def _locked(pair: KeyPair) -> Iterator[None]:
    """The key file is never replaced, so it is what those who change a list lock."""
    writable = os.access(pair.path, os.W_OK)  # locks of NFS need it
    try:
        descriptor = os.open(pair.path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise _unchangeable(pair.path, error) from error
    deadline = time.monotonic() + _PATIENCE_S
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
    target = Path(os.path.realpath(file))  # people keep links to such files in repositories
    draft = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    try:
        write_new(draft, content)
        draft.replace(target)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise _unchangeable(file, error) from error


def _unchangeable(file: Path, error: OSError) -> KeyProblem:
    return KeyProblem(
        f"{file} cannot be changed: {error.strerror}",
        f"make {file.parent} writable for this user, or edit the list by hand where it is",
    )
