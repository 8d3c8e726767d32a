"""The two lists beside the key file: users we admit, and users we trust.

    authorized_keys   PUBLIC [read|act] [NAME]    who may read our jobs, or also act on ranks
    trusted_keys      PUBLIC [NAME]               whose jobs we show

`#` begins a comment, at the start of a line or after a blank. A line without a right gives
`read`, as all lines did before there were rights. If a key is listed twice, the lesser right holds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final, Literal, TypeVar

from frtop_probe.keys.pair import KeyPair, KeyProblem
from frtop_probe.keys.public import format_public, parse_public

AUTHORIZED: Final = "authorized_keys"
TRUSTED: Final = "trusted_keys"
MAX_FILE: Final = 256 * 1024
"""Most bytes. A longer list is refused, not cut: its last lines may restrict rights."""

Right = Literal["read", "act"]


@dataclass(frozen=True, slots=True)
class AuthorizedKey:
    """Another user who may connect. `public` is z85."""

    public: bytes
    right: Right = "read"
    name: str = ""


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """Another user whose jobs we show. `public` is z85."""

    public: bytes
    name: str = ""


Entry = TypeVar("Entry", AuthorizedKey, TrustedKey)


def authorized(pair: KeyPair) -> tuple[AuthorizedKey, ...]:
    """The other users whom `authorized_keys` admits. Our own key may always act.

    Raises:
        KeyProblem: others can write the file, or a line has no valid key.
    """
    found: dict[bytes, AuthorizedKey] = {}
    for entry in _entries(pair, AUTHORIZED, parse_authorized):
        known = found.get(entry.public)
        if known is None or known.right == "act":
            found[entry.public] = entry
    return tuple(found.values())


def trusted(pair: KeyPair) -> tuple[TrustedKey, ...]:
    """The other users whose agents we trust, in the order of `trusted_keys`.

    Raises:
        KeyProblem: others can write the file, or a line has no valid key.
    """
    found: dict[bytes, TrustedKey] = {}
    for entry in _entries(pair, TRUSTED, parse_trusted):
        found.setdefault(entry.public, entry)
    return tuple(found.values())


def parse_authorized(line: str) -> AuthorizedKey | None:
    """Parses a line of `authorized_keys`; None when it has no valid key."""
    public, rest = _key_and_rest(line)
    if public is None:
        return None
    if rest[:1] in (["read"], ["act"]):
        return AuthorizedKey(public, "act" if rest[0] == "act" else "read", " ".join(rest[1:]))
    return AuthorizedKey(public, "read", " ".join(rest))


def parse_trusted(line: str) -> TrustedKey | None:
    """Parses a line of `trusted_keys`; None when it has no valid key."""
    public, rest = _key_and_rest(line)
    return None if public is None else TrustedKey(public, " ".join(rest))


def format_authorized(entry: AuthorizedKey) -> str:
    """Formats a line of `authorized_keys`."""
    return f"{format_public(entry.public)} {entry.right} {entry.name}".rstrip()


def format_trusted(entry: TrustedKey) -> str:
    """Formats a line of `trusted_keys`."""
    return f"{format_public(entry.public)} {entry.name}".rstrip()


def lines_of(file: Path) -> list[str]:
    """The lines of a list; none when the file does not exist. Bytes that are not UTF-8 are escaped.

    Raises:
        KeyProblem: the file cannot be read, is too long, or others can write it.
    """
    try:
        # Without O_NONBLOCK, opening a fifo would wait for a writer.
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
        raise KeyProblem(
            f"{file} is longer than {MAX_FILE} bytes", "remove the lines that are not needed"
        )
    text = content.decode("utf-8", "surrogateescape")
    return text.removesuffix("\n").split("\n") if text else []


def _check_owner(file: Path, found: os.stat_result) -> None:
    quoted = quote(str(file))
    if not stat.S_ISREG(found.st_mode):
        raise KeyProblem(
            f"{file} is not a regular file",
            f"move it away: mv {quoted} {quoted}.old",
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise KeyProblem(
            f"{file} belongs to another user (uid {found.st_uid}), who could admit anybody",
            f"move it away: mv {quoted} {quoted}.old",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise KeyProblem(
            f"{file} decides who is admitted, and other users can write it",
            f"check its lines, then: chmod go-w {quoted}",
        )


def _key_and_rest(line: str) -> tuple[bytes | None, list[str]]:
    words = line.split()
    # A z85 key may contain # but not begin with it: the first word would exceed 32 bits.
    words = words[: next((at for at, word in enumerate(words) if word.startswith("#")), None)]
    return (parse_public(words[0]), words[1:]) if words else (None, [])


def _entries(pair: KeyPair, name: str, parse: Callable[[str], Entry | None]) -> Iterator[Entry]:
    """The entries of other users, in order; a line with no key must be blank or a comment."""
    file = pair.path.with_name(name)
    for number, line in enumerate(lines_of(file), 1):
        entry = parse(line)
        if entry is not None:
            if entry.public != pair.public:
                yield entry
        elif (text := line.strip()) and not text.startswith("#"):
            raise KeyProblem(
                f"{file}, line {number}: not a public key",
                "each line begins with the public key that `frtop key` prints; "
                "`#` begins a comment",
            )
