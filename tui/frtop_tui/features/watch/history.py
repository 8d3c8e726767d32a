"""The history of culprits, in SQLite: which hosts were to blame in earlier jobs?

Small and bounded: a row per culprit of a confirmed verdict. Nothing here raises: a history
that cannot be read or written gives a line, and watching goes on.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

FILE: Final = "history.sqlite"
MOST_ROWS: Final = 10_000
OLDEST_S: Final = 90 * 86400.0
BUSY_S: Final = 3.0
"""How long to wait while another watcher holds the file."""
MOST_TEXT: Final = 200
Result = TypeVar("Result")
_SCHEMA: Final = """
create table if not exists culprits (
    at real not null, run text not null, job text not null, host text not null,
    rank integer not null, gpu text not null, link text not null,
    kind text not null, cause text not null, layer text not null)
"""


class Culprit(NamedTuple):
    """One rank that was to blame. `run` is the same for all verdicts of one start of a job.

    `at_s` is Unix time. `gpu` and `link` are "" where they are not known.
    """

    at_s: float
    run: str
    job: str
    host: str
    rank: int
    gpu: str
    link: str
    kind: str
    cause: str
    layer: str


class CulpritHistory:
    """Opens the file for each use: watchers run for weeks, and files are moved meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_set_aside = False
        self.problem = ""
        """Why the last use failed, or what was set aside; "" otherwise."""

    def add(self, culprits: Sequence[Culprit]) -> None:
        """Adds rows, and removes old and surplus ones."""
        rows = [tuple(_cut(value) for value in one) for one in culprits]

        def work(connection: sqlite3.Connection) -> bool:
            connection.execute(_SCHEMA)
            with connection:
                connection.executemany("insert into culprits values (?,?,?,?,?,?,?,?,?,?)", rows)
                connection.execute("delete from culprits where at < ?", (time.time() - OLDEST_S,))
                connection.execute(
                    "delete from culprits where rowid not in"
                    " (select rowid from culprits order by at desc limit ?)",
                    (MOST_ROWS,),
                )
            return True

        if not self._use(work, create=True) and self._is_set_aside:
            problem = self.problem
            self._use(work, create=True)
            self.problem = self.problem or problem

    def since(self, at_s: float) -> tuple[Culprit, ...]:
        """All rows from that time on, oldest first; none if there is no history."""

        def work(connection: sqlite3.Connection) -> tuple[Culprit, ...]:
            rows = connection.execute(
                "select * from culprits where at >= ? order by at limit ?", (at_s, MOST_ROWS)
            )
            return tuple(_checked(rows))

        self.problem = ""
        return (self._use(work, create=False) or ()) if self._path.exists() else ()

    def forget(self) -> bool:
        """Removes the history; returns whether there was one.

        Raises:
            OSError: it cannot be removed.
        """
        there = self._path.exists()
        for path in (self._path, *self._path.parent.glob(f"{self._path.name}-*")):
            path.unlink(missing_ok=True)
        return there

    def _use(self, work: Callable[[sqlite3.Connection], Result], *, create: bool) -> Result | None:
        """What `work` returns, None with `problem` if it failed."""
        self.problem, self._is_set_aside = "", False
        inode = 0
        try:
            if create:  # SQLite would give it the mode of the umask
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            inode = self._path.stat().st_ino
            with closing(sqlite3.connect(self._path, timeout=BUSY_S)) as connection:
                return work(connection)
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            self.problem = f"the history {self._path} cannot be used: {error}"
            # Subclasses mean that the file is busy, full or gone, not that it is damaged.
            if type(error) is sqlite3.DatabaseError or isinstance(error, (ValueError, TypeError)):
                self.problem = self._set_aside(inode, str(error))
            return None

    def _set_aside(self, inode: int, why: str) -> str:
        """Moves a damaged file away, unless another watcher has done so."""
        aside = self._path.with_name(f"{self._path.name}-damaged-{int(time.time())}")
        try:
            with self._path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if self._path.stat().st_ino == inode:
                    self._path.replace(aside)
                self._is_set_aside = True
        except OSError as error:
            return f"the history {self._path} is damaged ({why}), and stays there: {error}"
        return f"the history was damaged ({why}) and is {aside} now; a new one begins"


def _cut(value: float | str) -> float | str:
    """Shortens a name: names come from other hosts, and must not fill the disk."""
    return value[:MOST_TEXT] if isinstance(value, str) else value


def _checked(rows: Iterable[tuple[object, ...]]) -> Iterator[Culprit]:
    """Raises ValueError or TypeError for a row that frtop did not write."""
    for at_s, run, job, host, rank, *texts in rows:
        words = [str(one) for one in (run, job, host, *texts)]
        if not isinstance(at_s, (int, float)) or not isinstance(rank, int):
            raise TypeError("a row is not one of frtop's")
        yield Culprit(float(at_s), words[0], words[1], words[2], rank, *words[3:])
