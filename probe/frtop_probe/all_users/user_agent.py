"""The process that reads the ranks of one user, with that user's rights.

`python -m frtop_probe.all_users.user_agent`, started by `user_process` after root was given up.
Its standard input is a socket to that agent. It is a guest in the user's folder: it takes no
lock, leaves no card and removes no ring, so the user's own agent may run beside it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from contextlib import suppress
from typing import Final, Literal

from frtop_probe.agent.announcement import own_version
from frtop_probe.agent.interfaces import Operator
from frtop_probe.agent.options import Options
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.resources import limit_resources
from frtop_probe.agent.service import AgentService, LeaveReason
from frtop_probe.all_users.framing import FromUser, packed, receive_to_user
from frtop_probe.ring.folder import existing

MAX_UNSENT: Final = 64 * 1024 * 1024
"""Bytes that wait for the agent of all users: updates are dropped above, and it asks again."""
LISTED: Final = "/etc/frtop/admitted"


class GivenRights:
    """What the agent of all users said of each key: the list is root's, and this is not root."""

    read_only: Final = False
    notes: Final[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._acting: dict[bytes, bool] = {}
        self._owners: set[bytes] = set()

    def learn(self, key: bytes, *, may_act: bool, is_owner: bool) -> None:
        self._acting[key] = may_act
        if is_owner:
            self._owners.add(key)

    def take_notes_changed(self) -> bool:
        return False

    def is_owner(self, key: bytes) -> bool:
        return key in self._owners

    async def right(self, key: bytes) -> Literal["read", "act"] | None:
        may_act = self._acting.get(key)
        return None if may_act is None else "act" if may_act else "read"

    def set_read_only(self, connection: bytes, key: bytes) -> None:
        """The agent of all users remembers that."""

    def is_read_only(self, connection: bytes, key: bytes) -> bool:  # noqa: ARG002 - as above
        return False

    def admit_command(self, key: bytes) -> str:  # noqa: ARG002 - any key
        return f"root gives it `act` in {LISTED}"


class ServiceChannel:
    """The socket to the agent of all users, as a service sees its operators."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.admission = GivenRights()
        self.last_heard = time.monotonic()  # it was started because somebody looks
        self._reader = reader
        self._writer = writer
        self.ended = asyncio.Event()

    def publish(self, frame: bytes) -> None:
        if self._writer.transport.get_write_buffer_size() < MAX_UNSENT:
            self._writer.write(packed(FromUser(b"", frame)))

    async def receive(self) -> tuple[Operator, bytes]:
        try:
            message = await receive_to_user(self._reader)
        except EOFError:
            self.ended.set()
            await asyncio.Event().wait()  # until it is cancelled
            raise
        self.admission.learn(message.key, may_act=message.may_act, is_owner=message.is_owner)
        return Operator(message.connection, message.key), message.frame

    async def send(self, operator: Operator, frame: bytes) -> None:
        with suppress(OSError):
            self._writer.write(packed(FromUser(operator.connection, frame)))
            await self._writer.drain()


async def serve() -> LeaveReason:
    """Serves until the agent of all users closes the socket."""
    given = socket.socket(fileno=os.dup(0))
    given.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=given)
    channel = ServiceChannel(reader, writer)
    tracker = RankTracker(existing(), guest=True)
    options = Options(outside=os.environ.get("FRTOP_OUTSIDE") != "0", for_root=True)
    service = AgentService(options, tracker, channel, own_version())
    service.handle_signals()

    async def leave_at_the_end() -> None:
        await channel.ended.wait()
        service.leave(LeaveReason.OPERATOR_LEFT)

    ending = asyncio.create_task(leave_at_the_end())
    try:
        return await service.run()
    finally:
        ending.cancel()
        tracker.clear()
        writer.close()


def main() -> int:
    if os.geteuid() == 0 and "--as-root" not in sys.argv:
        sys.stderr.write("root's rights were not given up\n")
        return 1
    limit_resources()
    asyncio.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
