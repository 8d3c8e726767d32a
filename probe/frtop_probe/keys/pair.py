"""The key file: the pair that is the identity of a user's agents and screens."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zmq

from frtop_probe.keys.problem import KeyProblem, NoKey
from frtop_probe.keys.public import is_z85, shown

FILE_VARIABLE: Final = "FRTOP_KEY_FILE"
_MAX_FILE: Final = 64 * 1024
_NO_LINKS: Final = frozenset(
    (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)
)
"""What `link` answers where there are no hard links (EACCES: where a policy forbids them)."""
_UNFINISHED_S: Final = 1.0
"""How long a key file that breaks off may be one that is being written just now."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE pair in z85, and the file it came from. The secret stays out of reprs."""

    path: Path
    public: bytes
    _secret: bytes

    @property
    def secret(self) -> bytes:
        return self._secret

    @property
    def shown(self) -> str:
        """The public key as people see and type it."""
        return shown(self.public)

    def __repr__(self) -> str:
        return f"KeyPair({self.path}, {self.shown})"


def path() -> Path:
    """Where the user's key file is, or will be.

    Raises:
        KeyProblem: nobody says where this user's home is.
    """
    try:
        if named := os.environ.get(FILE_VARIABLE):
            return Path(named).expanduser().absolute()
        config = os.environ.get("XDG_CONFIG_HOME", "")
        base = Path(config) if Path(config).is_absolute() else Path.home() / ".config"
    except RuntimeError as error:  # a uid without an entry, as containers have
        raise KeyProblem(
            "this user has no home folder to keep a key in",
            f"name a key file with {FILE_VARIABLE}",
        ) from error
    return base / "frtop" / "key"


def load(*, create: bool) -> KeyPair:
    """The user's pair; with `create` it is made when there is none yet.

    Raises:
        NoKey: there is none, and none was to be made.
        KeyProblem: readable by others, owned by somebody else, malformed, or not to be made.
    """
    file = path()
    try:
        text = _read_whole(file)
    except FileNotFoundError:
        if not create:
            raise NoKey(
                f"there is no key at {file}",
                f"`frtop key make` makes one; if the job runs as this user elsewhere, copy its "
                f"key file to {file} instead (chmod 600)",
            ) from None
        _make(file)
        text = _read_whole(file)
    return _parse(file, text)


def _read_whole(file: Path) -> str:
    """The content of the key file, also where it appears before it is complete."""
    patience = time.monotonic() + _UNFINISHED_S
    while True:
        text = _read_private(file)
        if not _breaks_off(text) or time.monotonic() > patience:
            return text
        time.sleep(0.02)


def _breaks_off(text: str) -> bool:
    """Whether more may follow. Braces tell nothing: keys in z85 hold them, too."""
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
        # A fifo in its place would wait for a writer for ever.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
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
        sound = is_z85(public) and is_z85(secret) and zmq.curve_public(secret) == public
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise KeyProblem(
            f"the key file {file} does not hold a key pair",
            f"move it away, and `frtop key make` makes a new one: mv {file} {file}.broken",
        )
    return KeyPair(file, public, secret)


def _make(file: Path) -> None:
    """Makes the pair once, though many ranks, of many hosts, may try at the same moment.

    A complete file is linked to its name: that succeeds for exactly one of them, and
    nobody ever reads half a file.
    """
    public, secret = zmq.curve_keypair()
    content = {"public": public.decode(), "secret": secret.decode()}
    text = (json.dumps(content, indent=1) + "\n").encode()
    draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(draft, text)
        try:
            os.link(draft, file)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # The name itself is taken then, by one again, and filled in one write. A
            # reader that comes in between waits for the rest (`_read_whole`).
            write_new(file, text)
    except FileExistsError:
        return  # another was first
    except OSError as error:
        raise KeyProblem(
            f"no key can be made at {file}: {error.strerror}",
            f"make room, or that folder writable; or name another file with {FILE_VARIABLE}",
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def write_new(file: Path, content: bytes) -> None:
    """Writes a file that must not exist yet; takes it away again when there is no room."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        with suppress(OSError):
            file.unlink()
        raise
