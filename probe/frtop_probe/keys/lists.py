"""The two lists beside the key file: whom we admit, and whom we trust.

    authorized_keys   PUBLIC [read|act] [NAME]    who may look at our jobs, or also act
    trusted_keys      PUBLIC [NAME]               whose jobs we look at

`#` begins a comment, at the start of a line or after a blank. A line that says neither
`read` nor `act` gives `read`: lines from before there were rights gave no more than that.
Where a key stands twice, the lesser right holds.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from frtop_probe.keys.pair import KeyPair
from frtop_probe.keys.problem import KeyProblem
from frtop_probe.keys.public import read, shown

AUTHORIZED: Final = "authorized_keys"
TRUSTED: Final = "trusted_keys"
MAX_FILE: Final = 256 * 1024
"""A longer list is refused, not cut: what stands at its end may be what counts."""

Right = Literal["read", "act"]


@dataclass(frozen=True, slots=True)
class AuthorizedKey:
    """Somebody else who may come in. `public` is z85."""

    public: bytes
    right: Right = "read"
    name: str = ""


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """Another user whose agents we look at. `public` is z85."""

    public: bytes
    name: str = ""


def authorized(pair: KeyPair) -> tuple[AuthorizedKey, ...]:
    """Whom `authorized_keys` admits beside ourselves: we may act, whatever it says.

    Raises:
        KeyProblem: others could write that file, or a line is no key.
    """
    found: dict[bytes, AuthorizedKey] = {}
    file = pair.path.with_name(AUTHORIZED)
    for number, line in enumerate(lines_of(file), 1):
        one = authorized_line(line)
        if one is None:
            _nothing(file, number, line)
        elif one.public != pair.public:
            known = found.get(one.public)
            found[one.public] = known if known is not None and known.right == "read" else one
    return tuple(found.values())


def trusted(pair: KeyPair) -> tuple[TrustedKey, ...]:
    """Whose agents we look at beside our own, in the order of `trusted_keys`.

    Raises:
        KeyProblem: others could write that file, or a line is no key.
    """
    found: dict[bytes, TrustedKey] = {}
    file = pair.path.with_name(TRUSTED)
    for number, line in enumerate(lines_of(file), 1):
        one = trusted_line(line)
        if one is None:
            _nothing(file, number, line)
        elif one.public != pair.public:
            found.setdefault(one.public, one)
    return tuple(found.values())


def authorized_line(line: str) -> AuthorizedKey | None:
    """A line of `authorized_keys`; None when it names no key."""
    public, rest = _key_and_rest(line)
    if public is None:
        return None
    if rest[:1] in (["read"], ["act"]):
        return AuthorizedKey(public, "act" if rest[0] == "act" else "read", " ".join(rest[1:]))
    return AuthorizedKey(public, "read", " ".join(rest))


def trusted_line(line: str) -> TrustedKey | None:
    """A line of `trusted_keys`; None when it names no key."""
    public, rest = _key_and_rest(line)
    return None if public is None else TrustedKey(public, " ".join(rest))


def authorized_text(one: AuthorizedKey) -> str:
    """The line of `authorized_keys` that says so."""
    return f"{shown(one.public)} {one.right} {one.name}".rstrip()


def trusted_text(one: TrustedKey) -> str:
    """The line of `trusted_keys` that says so."""
    return f"{shown(one.public)} {one.name}".rstrip()


def lines_of(file: Path) -> list[str]:
    """The lines of a list, none when there is no such file; what is not UTF-8 is escaped.

    Raises:
        KeyProblem: it cannot be read, is too long, or others could have written it.
    """
    try:
        # A fifo in its place would wait for a writer for ever.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise KeyProblem(f"{file} cannot be read: {error.strerror}", f"look at {file}") from error
    try:
        with os.fdopen(descriptor, "rb") as opened:
            _check_owner(file, os.fstat(opened.fileno()))
            content = opened.read(MAX_FILE + 1)
    except OSError as error:
        raise KeyProblem(f"{file} cannot be read: {error.strerror}", f"look at {file}") from error
    if len(content) > MAX_FILE:
        raise KeyProblem(f"{file} is longer than {MAX_FILE} bytes", "keep the lines that count")
    text = content.decode("utf-8", "surrogateescape")
    return text.removesuffix("\n").split("\n") if text else []


def _check_owner(file: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise KeyProblem(f"{file} is no file", f"move it away: mv {file} {file}.old")
    if found.st_uid not in (os.geteuid(), 0):
        raise KeyProblem(
            f"{file} belongs to another user (uid {found.st_uid}), who could let anybody in",
            f"move it away: mv {file} {file}.old",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise KeyProblem(
            f"{file} says whose keys count, and others can write it",
            f"see that it is as you want it, then: chmod go-w {file}",
        )


def _key_and_rest(line: str) -> tuple[bytes | None, list[str]]:
    words = line.split()
    # A key in z85 may hold a # but not begin with one: that would be more than 32 bits.
    words = words[: next((at for at, word in enumerate(words) if word.startswith("#")), None)]
    return (read(words[0]), words[1:]) if words else (None, [])


def _nothing(file: Path, number: int, line: str) -> None:
    """Raises unless the line is blank or a comment."""
    text = line.strip()
    if text and not text.startswith("#"):
        raise KeyProblem(
            f"{file}, line {number}: not a public key",
            "a line begins with what `frtop key` shows that user; `#` begins a comment",
        )
