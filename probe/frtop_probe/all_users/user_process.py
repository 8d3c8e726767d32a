"""One process that reads one user's ranks, as the agent of all users sees it."""

from __future__ import annotations

import asyncio
import itertools
import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.agent.interfaces import Operator
from frtop_probe.all_users import become_user
from frtop_probe.all_users.framing import Budget, ToUser, packed, receive_from_user
from frtop_probe.all_users.subscription import with_joint_keys

PYTHON: Final = "FRTOP_AGENT_PYTHON"
"""Names a Python that all users can run, where root's own lies in a folder closed to them."""
RESPONSE_S: Final = 30.0
"""Longer than any request takes in a process that is well."""
MAX_RANKS: Final = 4096
"""Ranks of one user that are known by pid; ended ones are forgotten by the process."""
_PASSED: Final = ("PATH", "LANG", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "FRTOP_OUTSIDE")
_END_S: Final = 2.0
_LAST_WORDS: Final = 300


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: a connection with its key, and what the key may do to this user's ranks."""

    operator: Operator
    may_act: bool
    is_owner: bool


class UserProcess:
    """Reads the ranks of one user. `number` is never given to another process of this agent.

    Args of the constructor:
        number: its part of the keys of its ranks.
        uid: the user.
        on_update: called with each of its updates, which have joint keys.
    """

    def __init__(
        self, number: int, uid: int, on_update: Callable[[UserProcess, wire.Update], None]
    ) -> None:
        self.number = number
        self.uid = uid
        self.user = user_name(uid)
        self.ranks: dict[int, tuple[int, int]] = {}
        """Pid and global rank (-1 unknown) of its ranks, by their joint keys."""
        self.problem = ""
        """Why it has ended, "" while it runs."""
        self.started = time.monotonic()
        self._on_update = on_update
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[wire.Response]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._errors: int | None = None

    @property
    def pid(self) -> int:
        """0 before it was started."""
        return self._process.pid if self._process is not None else 0

    @property
    def runs(self) -> bool:
        return self._writer is not None and not self.problem

    async def start(self) -> None:
        """Starts it; `problem` says why it does not run."""
        ours, theirs = socket.socketpair()
        self._errors = os.memfd_create("frtop errors")
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command_for(self.uid),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    env=_environment(),
                )
            ours.setblocking(False)
            reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        except OSError as error:
            ours.close()
            self.problem = f"the process for user {self.user} cannot be started: {error.strerror}"
            return
        self._reading = asyncio.create_task(self._read(reader))

    async def ask(self, asker: Asker, request: wire.Request) -> wire.Response | None:
        """The response, with its own id and keys; None if there was none."""
        if self._writer is None or self.problem:
            return None
        number = next(self._ids)
        operator = asker.operator
        frame = wire.to_frame(replace(request, id=number))
        message = ToUser(operator.connection, operator.key, asker.may_act, asker.is_owner, frame)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            with suppress(OSError):
                self._writer.write(packed(message))
                return await asyncio.wait_for(future, RESPONSE_S)
        except (asyncio.TimeoutError, TimeoutError, EOFError):
            return None
        finally:
            self._waiting.pop(number, None)
        return None

    async def end(self) -> None:
        """Closes its socket, on which it leaves, and kills it if it does not."""
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()
        until = time.monotonic() + _END_S
        while self._process is not None and self._process.poll() is None:
            if time.monotonic() > until:
                self._process.kill()
            await asyncio.sleep(0.02)
        self._fail(self.problem or "it was ended")
        if self._errors is not None:
            os.close(self._errors)
            self._errors = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        budget = Budget()
        try:
            while True:
                message = await receive_from_user(reader)
                budget.spend(len(message.frame), time.monotonic())
                data = wire.from_frame(message.frame)
                if message.connection:
                    response = wire.decode_response(data)
                    waiting = self._waiting.get(response.id)
                    if waiting is not None and not waiting.done():
                        if isinstance(response, wire.StateResponse):
                            update = with_joint_keys(self.number, response.update)
                            self._learn(update)
                            response = replace(response, update=update)
                        waiting.set_result(response)
                    continue
                update = with_joint_keys(self.number, wire.decode_update(data))
                self._learn(update)
                self._on_update(self, update)
        except Exception as error:  # noqa: BLE001 - what it sends costs its own user only
            await asyncio.sleep(0.2)  # for its last words
            self._fail(self._last_words() or str(error))

    def _learn(self, update: wire.Update) -> None:
        for rank in update.ranks:
            if rank.identity is not None and len(self.ranks) < MAX_RANKS:
                self.ranks[rank.key] = (rank.identity.pid, rank.identity.rank)
        for key in update.forgotten:
            self.ranks.pop(key, None)

    def _fail(self, why: str) -> None:
        self.problem = self.problem or f"the process for user {self.user} has ended: {why}"
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(EOFError(self.problem))

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        size = os.fstat(self._errors).st_size
        text = os.pread(self._errors, _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(
            "utf-8", "replace"
        )
        lines = [line for line in text.splitlines() if line.strip()]
        return "".join(c for c in lines[-1] if c.isprintable()) if lines else ""


def command_for(uid: int) -> list[str]:
    """The command line of a user's process."""
    python = os.environ.get(PYTHON) or sys.executable
    keep = "1" if become_user.yama_forbids() else "0"
    command = [
        python,
        "-m",
        "frtop_probe.all_users.user_agent",
        *(["--as-root"] if not uid else []),
    ]
    return [sys.executable, "-I", "-S", become_user.__file__, str(uid), keep, *command]


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return str(uid)


def _environment() -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    package = str(Path(__file__).parents[2])
    path = [package, *filter(None, passed.get("PYTHONPATH", "").split(os.pathsep))]
    # py-spy lies beside root's Python, and not beside every other one.
    tools = [passed.get("PATH") or os.defpath, str(Path(sys.executable).parent)]
    return {
        **passed,
        "PATH": os.pathsep.join(tools),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
    }
