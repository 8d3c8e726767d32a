"""How far the device of one group has got with the collectives that this rank handed to it.

An NCCL op runs on its device long after the call that issued it has returned. Torch's Flight
Recorder keeps two numbers per group: that of the last collective handed over, and that of the
last one completed. `device_watch` reads them; here they become ends of our own ops.

Ops whose end these numbers do not show are *untracked*: sends and receives, and all ops of a group
once it has had any of these, because they share the numbers; captured ops, which have a number but
are never handed over; all ops of a group that the Flight Recorder does not have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

NCCL: Final = "nccl"
NCCL2: Final = "nccl2"
"""What "nccl" means on newer torches: another class, with its own recorder."""

P2P: Final = "p2p"
OFF: Final = "recorder off"
UNREADABLE: Final = "unreadable"
DESTROYED: Final = "destroyed"
NOT_HANDED_OVER: Final = "not handed over"
"""Reasons why ops are untracked, in a group's `blind`. The last one means that the backend does not
record what it hands over, as with `TORCH_NCCL_BLOCKING_WAIT=1`."""

MISSED: Final = 16
"""If none of this many ops was handed over, none will be."""


class HandedOver(NamedTuple):
    """A collective whose call has returned, and the backend's number for it."""

    position: int
    sequence: int
    number: int
    issued_ns: int
    site: int


class Status(NamedTuple):
    """The backend's numbers of a group; -1 if none."""

    enqueued: int
    completed: int


class DeviceFront:
    """Ops of one group on its device. The hook adds them, the recorder's thread takes them.

    Attributes:
        group: The group's number in the ring.
        device: Torch's device object.
        kind: Name of the backend.
        listed: Whether the group was seen in the Flight Recorder.
        waiting: Ops on the device, oldest first.
        blind: Why its ops are untracked; "" while they are tracked.
    """

    __slots__ = (
        "_base", "_completed", "_count", "_missed", "blind", "device", "group", "kind", "listed",
        "waiting",
    )  # fmt: skip

    def __init__(self, group: int, device: Any, kind: str) -> None:
        self.group = group
        self.device = device
        self.kind = kind
        self.listed = False
        self.waiting: deque[HandedOver] = deque()
        self.blind = ""
        self._base: int | None = None
        self._count = 0
        self._completed = -1
        self._missed = 0

    def handed_over(
        self, process_group: Any, sequence: int, number: int, issued_ns: int, site: int
    ) -> None:
        """Notes that the call of a collective has returned. Called by the hook.

        If another thread has issued one since, the end is found later, never too early.
        """
        if self.kind == NCCL2:
            # Python cannot read its count at this point, so we keep our own; `take` finds the
            # offset.
            self._count += 1
            position = self._count
        else:
            backend = process_group._get_backend(self.device)  # noqa: SLF001
            position = backend._get_sequence_number_for_group()  # noqa: SLF001
        self.waiting.append(HandedOver(position, sequence, number, issued_ns, site))

    def take(
        self,
        status: Status | None,
        returned: int,
        finish: Callable[[HandedOver], None],
        untrack: Callable[[HandedOver], None],
    ) -> str:
        """Applies the numbers of the backend.

        Args:
            status: None if the Flight Recorder does not have the group.
            returned: length of `waiting` before the status was read.
            finish: called with complete ops, oldest first.
            untrack: called with ops whose end will never be known.

        Returns:
            A reason to give up, or "".
        """
        if status is None:
            return OFF if returned else ""
        self.listed = True
        enqueued, completed = self._ours(status.enqueued), self._ours(status.completed)
        self._completed = max(self._completed, completed)  # it goes back if streams differ
        while self.waiting and self.waiting[0].position <= self._completed:
            finish(self.waiting.popleft())
            returned -= 1
        for one in list(self.waiting)[: max(0, returned)]:
            if one.position > enqueued:  # captured, or within a coalesced block
                self.waiting.remove(one)
                untrack(one)
                self._missed += 1
        return NOT_HANDED_OVER if status.enqueued < 0 and self._missed >= MISSED else ""

    def give_up(self, reason: str, untrack: Callable[[HandedOver], None]) -> None:
        """Ends the tracking of this group's ops for good."""
        self.blind = self.blind or reason
        while self.waiting:
            untrack(self.waiting.popleft())

    def _ours(self, position: int) -> int:
        """Converts a number of the backend to the count of `handed_over`."""
        if self.kind != NCCL2 or position < 0:
            return position
        if self._base is None:
            # Read while no op was in its call: the newest one is the last that we noted.
            self._base = position - self._count
        return position - self._base
