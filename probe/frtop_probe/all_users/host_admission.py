"""Who may connect to the agent of all users, and whose ranks they may see: root's list, as of now.

As in `agent.admission`, a list that is broken or does not answer leaves the last good one in force.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.admission import Admission
from frtop_probe.all_users import admitted
from frtop_probe.all_users.admitted import OWNER_NAME, AdmittedKey, AdmittedKeys
from frtop_probe.all_users.user_process import user_name
from frtop_probe.keys import AuthorizedKey, KeyPair, format_public

DEFAULT_FOLDER: Final = Path("/etc/frtop")
MAX_NAMED: Final = 8
"""Users in one note."""


class HostAdmission(Admission):
    """Rights by key and user. Needs a running event loop.

    Args of the constructor:
        pair: the key of the host: who has it is root.
        file: the list.
        read_only: nobody may act.
    """

    def __init__(self, pair: KeyPair, file: Path, *, read_only: bool = False) -> None:
        self.file = file
        self._list = AdmittedKeys()
        self._root = AdmittedKey(pair.public, OWNER_NAME, everybody="act", is_owner=True)
        super().__init__(pair, read_only=read_only, read=self._read_list, file=file)

    async def admitted(self, key: bytes) -> AdmittedKey | None:
        """What a key may do, after the list was read again; None if it is not admitted."""
        return None if await self.right(key) is None else self.known(key)

    def known(self, key: bytes) -> AdmittedKey | None:
        """What a key may do, by the list as it was read last."""
        if self.is_owner(key):
            return self._root
        entry = self._list.keys.get(key)
        return entry if entry is not None and entry.most is not None else None

    @property
    def all_notes(self) -> tuple[str, ...]:
        """What is wrong with the list, for root: also names that may be typing errors."""
        unknown = ", ".join(self._list.unknown[:MAX_NAMED])
        names = (f"{self.file}: no user of this host is called {unknown}",) if unknown else ()
        return (*self.notes, *names)

    async def refresh(self) -> None:
        """Reads the list again; waits for that at most as long as a request does."""
        await self.right(b"")

    def admit_command(self, key: bytes) -> str:
        """The line that root adds to the list."""
        return f"echo '{format_public(key)} act USERS NAME' >> {self.file}"

    def _read_list(self, _pair: KeyPair) -> tuple[AuthorizedKey, ...]:
        """Called in a thread, which may hang."""
        found = admitted.read(self.file)
        self._list = found
        return found.authorized()


def limits_of(admitted: AdmittedKey) -> tuple[str, ...]:
    """What a screen has to know of its key: nothing is said of other users' ranks."""
    if admitted.everybody is not None:
        return ()
    users = ", ".join(user_name(uid) for uid in sorted(admitted.users)[:MAX_NAMED])
    more = len(admitted.users) - MAX_NAMED
    return (f"{wire.BY_ROOTS_LIST}{users}{f' and {more} more' * (more > 0)}",)
