"""The key file: the CURVE pair that identifies a user's agents and screens."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

import zmq

from frtop_probe import atomic_file
from frtop_probe.keys.public import format_public, is_z85

FILE_VARIABLE: Final = "FRTOP_KEY_FILE"
_MAX_FILE: Final = 64 * 1024
_UNFINISHED_S: Final = 1.0
"""How long another process may take to finish a key file, in seconds."""


class KeyProblem(Exception):
    """The keys cannot be used as they are; `next` says what the user can do."""

    def __init__(self, text: str, next_step: str) -> None:
        super().__init__(f"{text}\n{next_step}")
        self.text = text
        self.next = next_step


class NoKey(KeyProblem):
    """There is no key file yet."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE pair in z85, and its file. The secret does not appear in the repr."""

    path: Path
    public: bytes
    _secret: bytes

    @property
    def secret(self) -> bytes:
        return self._secret

    @property
    def shown(self) -> str:
        """The public key as text, see `keys.public`."""
        return format_public(self.public)

    def __repr__(self) -> str:
        return f"KeyPair({self.path}, {self.shown})"


def path() -> Path:
    """The path of the user's key file, whether it exists or not.

    Raises:
        KeyProblem: this user has no home folder.
    """
    try:
        if named := os.environ.get(FILE_VARIABLE):
            return Path(named).expanduser().absolute()
        config = os.environ.get("XDG_CONFIG_HOME", "")
        base = Path(config) if Path(config).is_absolute() else Path.home() / ".config"
    except RuntimeError as error:  # a uid without a passwd entry, as in containers
        raise KeyProblem(
            "this user has no home folder for a key file",
            f"name a key file with {FILE_VARIABLE}",
        ) from error
    return base / "frtop" / "key"


def load(*, create: bool) -> KeyPair:
    """Loads the user's pair; with `create`, makes one when there is none.

    Raises:
        NoKey: there is none, and `create` is false.
        KeyProblem: the file is readable by others, not ours, malformed, or cannot be made.
    """
    file = path()
    try:
        text = _read_complete(file)
    except FileNotFoundError:
        if not create:
            raise NoKey(
                f"there is no key at {file}",
                f"agents answer only to the key of their job: run frtop with the job's"
                f" {_folder_variable()}, or copy the job's key file to {file} (chmod 600); before"
                " the first job, `frtop key make` makes a key",
            ) from None
        _make(file)
        text = _read_complete(file)
    return _parse(file, text)


def _folder_variable() -> str:
    """The variable that decides where the key is, with its value: `HOME (here HOME=/root)`."""
    names = (FILE_VARIABLE, "XDG_CONFIG_HOME", "HOME")
    name = next((one for one in names if os.environ.get(one)), "HOME")
    value = os.environ.get(name)
    return f"{name} (here {name}={value})" if value else name


def _read_complete(file: Path) -> str:
    """The content of the key file; waits briefly while it is incomplete."""
    deadline = time.monotonic() + _UNFINISHED_S
    while True:
        text = _read_private(file)
        if not _is_incomplete(text) or time.monotonic() > deadline:
            return text
        time.sleep(0.02)


def _is_incomplete(text: str) -> bool:
    """Whether more may follow. Counting braces does not help: z85 contains braces."""
    if not text.startswith("{"):
        return not text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def _read_private(file: Path) -> str:
    descriptor = -1
    try:
        # Without O_NONBLOCK, opening a fifo would wait for a writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise KeyProblem(
                f"the key file {file} is not a regular file",
                f"name a file with it, or leave {FILE_VARIABLE} unset",
            )
        if found.st_uid != os.geteuid():
            raise KeyProblem(
                f"the key file {file} belongs to another user (uid {found.st_uid})",
                f"copy it as your own, or name another with {FILE_VARIABLE}",
            )
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise KeyProblem(
                f"the key file {file} can be read by others: its secret may be known",
                f"chmod 600 {quote(str(file))}",
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
        sound = is_z85(public) and is_z85(secret) and zmq.curve_public(secret) == public
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        sound = False
    if not sound:
        quoted = quote(str(file))
        raise KeyProblem(
            f"the key file {file} does not hold a key pair",
            f"move it away, and `frtop key make` makes a new one: mv {quoted} {quoted}.broken",
        )
    return KeyPair(file, public, secret)


def _make(file: Path) -> None:
    """Makes the key file exactly once, even if ranks on many hosts try at the same time."""
    public, secret = zmq.curve_keypair()
    content = {"public": public.decode(), "secret": secret.decode()}
    text = (json.dumps(content, indent=1) + "\n").encode()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_file.write(file, text, overwrite=False)
    except FileExistsError:
        return  # another process was first
    except OSError as error:
        raise KeyProblem(
            f"no key can be made at {file}: {error.strerror}",
            f"make room, or make that folder writable; or name another file with {FILE_VARIABLE}",
        ) from error
