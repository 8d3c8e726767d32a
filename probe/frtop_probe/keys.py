"""CURVE keys: where they are, and who may come in.

One pair per user is the identity of that user's agents and of that user's screens: on a
cluster with shared homes nothing needs to be set up. Everybody else's public key goes,
one per line, into `authorized_keys` beside the key file.

    KeyProblem        the sentence for the user in `text`, what to type next in `next`
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zmq
from zmq.utils import z85

FILE_VARIABLE: Final = "FRTOP_KEY_FILE"
AUTHORIZED: Final = "authorized_keys"
_KEY_LENGTH: Final = 40
"""Characters of a CURVE key in z85."""
_MAX_FILE: Final = 64 * 1024


class KeyProblem(Exception):
    """The keys cannot be used as they are; `next` says what to do about it."""

    def __init__(self, text: str, next_step: str) -> None:
        super().__init__(f"{text}\n{next_step}")
        self.text = text
        self.next = next_step


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE pair in z85, and the file it came from. The secret stays out of reprs."""

    path: Path
    public: bytes
    _secret: bytes

    @property
    def secret(self) -> bytes:
        return self._secret

    def __repr__(self) -> str:
        return f"KeyPair({self.path}, {self.public.decode()})"


def path() -> Path:
    """Where the user's key file is, or will be."""
    if named := os.environ.get(FILE_VARIABLE):
        return Path(named).expanduser().absolute()
    config = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(config) if Path(config).is_absolute() else Path.home() / ".config"
    return base / "frtop" / "key"


def load(*, create: bool) -> KeyPair:
    """The user's pair; with `create` it is made when there is none yet.

    Raises:
        KeyProblem: readable by others, owned by somebody else, malformed, or missing.
    """
    file = path()
    try:
        text = _read_private(file)
    except FileNotFoundError:
        if not create:
            raise KeyProblem(
                f"there is no key at {file}",
                f"start the job with `frtop run` or `frtop agent` as this user, or copy the key "
                f"of the job's user to {file} (chmod 600)",
            ) from None
        _make(file)
        text = _read_private(file)
    return _parse(file, text)


def authorized(pair: KeyPair) -> frozenset[bytes]:
    """Public keys that may come in: the user's own, and those of `authorized_keys`.

    Raises:
        KeyProblem: others could write that file, or a line is no key.
    """
    file = pair.path.with_name(AUTHORIZED)
    try:
        found = file.stat()
        text = file.read_text("utf-8")[:_MAX_FILE]
    except FileNotFoundError:
        return frozenset({pair.public})
    except (OSError, UnicodeDecodeError) as error:
        raise KeyProblem(f"{file} cannot be read: {error}", f"look at {file}") from error
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or found.st_uid not in (os.geteuid(), 0):
        raise KeyProblem(
            f"{file} says who may look at this user's jobs, and others can write it",
            f"chmod go-w {file}",
        )
    keys = {pair.public}
    for number, line in enumerate(text.splitlines(), 1):
        word = next(iter(line.split()), "")
        if _is_key(word.encode()):  # first: the alphabet of keys has a # too
            keys.add(word.encode())
        elif word and not word.startswith("#"):
            raise KeyProblem(
                f"{file}, line {number}: not a public key",
                f"a line is the {_KEY_LENGTH} characters of `public` in that user's key file, "
                "and a comment if you like",
            )
    return frozenset(keys)


def _is_key(key: bytes) -> bool:
    if len(key) != _KEY_LENGTH:
        return False
    try:
        return len(z85.decode(key)) == 32
    except (KeyError, ValueError, OverflowError):
        return False


def _read_private(file: Path) -> str:
    descriptor = -1
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise KeyProblem(
                f"the key file {file} is no file",
                f"name a file in it, or leave {FILE_VARIABLE} unset",
            )
        if found.st_uid != os.geteuid():
            raise KeyProblem(
                f"the key file {file} belongs to another user (uid {found.st_uid})",
                f"copy it as your own, or name another with {FILE_VARIABLE}",
            )
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise KeyProblem(
                f"the key file {file} can be read by others: its secret may be known",
                f"chmod 600 {file}",
            )
        return os.read(descriptor, _MAX_FILE).decode("utf-8", "replace")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise KeyProblem(
            f"the key file {file} cannot be read: {error.strerror}",
            f"make it readable for this user only, or name another with {FILE_VARIABLE}",
        ) from error
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _parse(file: Path, text: str) -> KeyPair:
    try:
        content = json.loads(text)
        public, secret = content["public"].encode(), content["secret"].encode()
        sound = _is_key(public) and _is_key(secret) and zmq.curve_public(secret) == public
    except (ValueError, TypeError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise KeyProblem(
            f"the key file {file} does not hold a key pair",
            f"move it away; the next `frtop run` or `frtop agent` makes a new one: "
            f"mv {file} {file}.broken",
        )
    return KeyPair(file, public, secret)


def _make(file: Path) -> None:
    """Makes the pair once, though many ranks may try at the same moment.

    A complete file is linked to its name: that succeeds for exactly one of them, and
    nobody ever reads half a file.
    """
    public, secret = zmq.curve_keypair()
    draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            content = {"public": public.decode(), "secret": secret.decode()}
            os.write(descriptor, (json.dumps(content, indent=1) + "\n").encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with suppress(FileExistsError):
            os.link(draft, file)
    except OSError as error:
        raise KeyProblem(
            f"no key can be made at {file}: {error.strerror}",
            f"make that folder writable, or name another file with {FILE_VARIABLE}",
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()
