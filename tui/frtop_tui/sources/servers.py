"""Which keys an agent may prove itself with: ours, and those of users we trust."""

from __future__ import annotations

import time
from typing import Final

from frtop_probe import keys
from frtop_probe.keys import KeyPair, KeyProblem
from frtop_tui.sources.places import Place

FRESH_S: Final = 5.0
"""The list is read again when it is older: somebody may add a key meanwhile."""


class Servers:
    """Public keys in the order in which to try them. Never empty."""

    def __init__(self, pair: KeyPair) -> None:
        self._pair = pair
        self._trusted: tuple[bytes, ...] = ()
        self._read_at = 0.0
        self._proven: dict[str, bytes] = {}  # place -> the key it had last
        self.problem = ""
        """Why the list of trusted keys cannot be used, with the next step."""

    @property
    def trusted(self) -> int:
        """How many keys of others there are."""
        return len(self._trusted)

    def of(self, place: Place) -> list[bytes]:
        """The keys to try at a place: the one it announced or had last time first."""
        if place.key:
            return [place.key]
        self._read()
        known = [self._pair.public, *self._trusted]
        last = self._proven.get(place.name)
        return list(dict.fromkeys([last, *known] if last in known else known))

    def proved(self, place: Place, key: bytes) -> None:
        """The agent there has this key."""
        self._proven[place.name] = key

    def _read(self) -> None:
        now = time.monotonic()
        if self._read_at and now - self._read_at < FRESH_S:
            return
        self._read_at = now
        try:
            self._trusted = tuple(one.public for one in keys.trusted(self._pair))
            self.problem = ""
        except KeyProblem as problem:
            self._trusted = ()
            self.problem = f"{problem.text}: {problem.next}"
