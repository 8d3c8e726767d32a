"""Root's list of who may look at whose ranks: `/etc/frtop/admitted`.

Each line is `PUBLIC read|act USERS NAME`: a public key, a right, the users of whose ranks it
holds (`ann,bob`, uids, or `*` for everybody), and who has the key, for people and the audit.
"""

from __future__ import annotations

import pwd
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frtop_probe.keys import AuthorizedKey, KeyProblem, Right, parse_public
from frtop_probe.keys.lists import lines_of

FILE: Final = "admitted"
EVERYBODY: Final = "*"
OWNER_NAME: Final = "root (key of this host)"
FORM: Final = "PUBLIC read|act USERS NAME, with USERS as `ann,bob` or `*`"
UserId = Callable[[str], int | None]


@dataclass(slots=True)
class AdmittedKey:
    """What one key may do. `everybody` holds for users that `users` does not name, by uid."""

    public: bytes
    name: str
    users: dict[int, Right] = field(default_factory=dict)
    everybody: Right | None = None
    is_owner: bool = False

    def right(self, uid: int) -> Right | None:
        """The right on the ranks of a user; None for none."""
        return self.users.get(uid, self.everybody)

    @property
    def most(self) -> Right | None:
        """The most that this key may do to anybody's ranks; None where it may see nobody's."""
        rights = [*self.users.values(), *([self.everybody] if self.everybody else [])]
        return "act" if "act" in rights else "read" if rights else None


@dataclass(frozen=True, slots=True)
class AdmittedKeys:
    """The whole list, by key. `unknown` are names of users that this host does not know."""

    keys: dict[bytes, AdmittedKey] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    def authorized(self) -> tuple[AuthorizedKey, ...]:
        """Who may connect, and the most that they may do to anybody."""
        return tuple(
            AuthorizedKey(one.public, most, one.name)
            for one in self.keys.values()
            if (most := one.most) is not None
        )


def read(file: Path) -> AdmittedKeys:
    """Reads the list; an empty one where there is no file. May wait for a directory service.

    Raises:
        KeyProblem: others can read or write it, or a line is not of its form.
    """
    lines = lines_of(file)
    if lines and file.stat().st_mode & 0o077:
        raise KeyProblem(
            f"{file} is open to other users", f"check its lines, then: chmod 600 {file}"
        )
    return parse(lines, str(file), _uid_of)


def parse(lines: Iterable[str], source: str, user_id: UserId) -> AdmittedKeys:
    """Parses the lines of a list; where lines contradict each other the lesser right counts.

    Args:
        lines: of the list.
        source: its name, for errors.
        user_id: the uid of a user's name, None if there is no such user.

    Raises:
        KeyProblem: a line is not of the form; the text has its number.
    """
    keys: dict[bytes, AdmittedKey] = {}
    unknown: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        words = words[: next((i for i, w in enumerate(words) if w.startswith("#")), None)]
        if not words:
            continue
        public = parse_public(words[0])
        if public is None:
            raise _problem(source, number, f"{words[0][:60]!r} is no public key")
        if words[1:2] not in (["read"], ["act"]):
            raise _problem(source, number, "the key is followed by neither `read` nor `act`")
        if len(words) < 4:
            raise _problem(source, number, "a name of who has the key is missing, or the users are")
        right: Right = "act" if words[1] == "act" else "read"
        entry = keys.setdefault(public, AdmittedKey(public, " ".join(words[3:])))
        for user in filter(None, words[2].split(",")):
            if user == EVERYBODY:
                entry.everybody = _lesser(entry.everybody, right)
                continue
            uid = int(user) if user.isdecimal() else user_id(user)
            if uid is None:
                unknown[user] = None
            else:
                entry.users[uid] = _lesser(entry.users.get(uid), right)
    return AdmittedKeys(keys, tuple(unknown))


def _lesser(known: Right | None, new: Right) -> Right:
    return "read" if known == "read" else new


def _problem(source: str, number: int, text: str) -> KeyProblem:
    return KeyProblem(
        f"{source}, line {number}: {text}", f"each line is {FORM}; # begins a comment"
    )


def _uid_of(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
