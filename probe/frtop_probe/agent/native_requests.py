"""Takes native stacks for operators, of one rank at a time."""

from __future__ import annotations

import time

from frtop_probe import wire
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.proc import processes
from frtop_probe.stacks import native_stacks, stacks


class NativeStacksTaker:
    """One per agent: while one rank of the host stands still, no other one does."""

    def __init__(self) -> None:
        self._rank: TrackedRank | None = None
        """The rank whose stacks are being taken."""

    async def take(
        self, host: str, request: wire.NativeStacksRequest, rank: TrackedRank
    ) -> wire.Response:
        """The rank's native stacks, or why there are none; "busy" while others are taken."""
        if self._rank is not None:
            text = (
                f"native stacks of process {self._rank.pid} on {host} are being taken, and "
                "one rank stands still at a time: ask again in a few seconds"
            )
            return wire.Error(request.id, text, "busy")
        if not _is_itself(rank):
            return _response(host, request, native_stacks.NativeStacks(stacks.gone(rank.pid)))
        self._rank, rank.held = rank, True
        try:
            found = await native_stacks.take(rank.pid)
        finally:
            self._rank, rank.held = None, False
        return _response(host, request, found)


def _response(
    host: str, request: wire.NativeStacksRequest, found: native_stacks.NativeStacks
) -> wire.NativeStacksResponse:
    return wire.NativeStacksResponse(
        id=request.id,
        host=host,
        key=request.key,
        at_ns=time.monotonic_ns(),
        stopped_ns=found.stopped_ns,
        dump=found.dump,
        tool=found.tool,
        note=found.note,
    )


def _is_itself(rank: TrackedRank) -> bool:
    """Whether the process lives, is this user's, and its pid has not been given to another one."""
    seen = processes.read_stat(rank.pid) if rank.lives else None
    return seen is not None and seen.start_ticks == rank.start_ticks and processes.is_own(rank.pid)
