"""Reads how far the devices of all groups have got, in the recorder's thread, at each heartbeat.

The status of torch's Flight Recorder is a copy of a few integers: reading it asks no device, so it
is allowed while a graph is captured, and returns when the driver hangs. `Work` and events are never
asked: that may block with the GIL held, and ends captures of other threads.

Reading iterates a map in torch that a group's *first* op extends. So such ops are in `first_calls`
during their calls, and nothing is read then.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from frtop_probe.recorder.ops import device_front
from frtop_probe.recorder.ops.device_front import NCCL, NCCL2, DeviceFront, HandedOver, Status
from frtop_probe.ring import layout

UNWATCHED_NS: Final = 1_000_000_000
"""If the call of a first op takes longer, it hides all devices, and the groups say so."""
ERROR_NS: Final = 1_000_000_000
"""When a device's oldest op is this old, its backend is asked for errors, at this interval."""
MAX_STATUS: Final = 8 << 20
"""Most bytes of a status: enough for about ten thousand groups."""
_FIELDS: Final = ("last_enqueued_collective", "last_completed_collective")
_NO_ERROR: Final = "SUCCESS"


class TrackedOps(Protocol):
    """See `pending.PendingOps`."""

    def finish(self, entry: Any, now: int, failed: bool | None, late: bool) -> None: ...

    def untrack(self, sequence: int, ended_ns: int = 0) -> None: ...


class NoStatus(Exception):
    """The Flight Recorder's answer is missing or has another form."""


class DeviceWatch:
    """All fronts of this process."""

    def __init__(
        self,
        words: memoryview[int],
        rows: int,
        ops: TrackedOps,
        note: Callable[[int, str, str], None],
        torch: Any,
    ) -> None:
        """`words` are the ring as machine words, `rows` its number of group rows.

        `note` is called with a group's number, why its ops are untracked, and its error.
        """
        self.lock = threading.RLock()
        """Held while a first op begins and while the status is read. A signal handler may issue
        an op within either."""
        self.first_calls: dict[int, int] = {}
        """When the call of each first op began, in ns, by its sequence number."""
        self.fronts: dict[int, tuple[DeviceFront, Any]] = {}
        """By group, with a weak reference to torch's object."""
        self._words = words
        self._rows = rows
        self._ops = ops
        self._note = note
        self._core = torch._C._distributed_c10d  # noqa: SLF001
        self._refusal = _refusal(torch)
        self._errors: dict[int, tuple[int, str]] = {}
        self._keys: dict[int, str] = {}

    # -- called by the hook and by the table of groups

    def front_of(self, group: int, process_group: Any, reference: Any) -> DeviceFront | None:
        """Returns the front of a new group; None if none of its ops can be tracked."""
        found = _device_backend(process_group)
        if found is None or found[1] not in (NCCL, NCCL2):
            return None
        device, kind, key = found
        if self._refusal:
            self._note(group, self._refusal, "")
            return None
        front = DeviceFront(group, device, kind)
        if key:
            self._keys[group] = key
        self.fronts[group] = front, reference
        return front

    def first_call(self, sequence: int, now: int) -> None:
        """Notes that an op of a group not listed yet is about to be issued."""
        with self.lock:
            self.first_calls[sequence] = now

    # -- called by the recorder's thread

    def look(self, now: int) -> None:
        """Reads the status, and completes the ops that it shows as complete."""
        for front, _ in list(self.fronts.values()):
            if front.blind:  # set by the hook
                self._give_up(front, front.blind)
        fronts = [front for front, _ in list(self.fronts.values())]
        for kind in {front.kind for front in fronts}:
            mine = [front for front in fronts if front.kind == kind]
            try:
                self._look(kind, mine, now)
            except NoStatus as error:
                for front in mine:
                    self._give_up(front, f"{device_front.UNREADABLE}: {error}")
        for front, reference in list(self.fronts.values()):
            if reference() is None:
                self._end(front)
            elif front.waiting and now - front.waiting[0].issued_ns > ERROR_NS:
                self._ask_for_error(front, reference(), now)

    def close(self, group: int | None = None) -> None:
        """Ends the tracking of a group that is being destroyed; None means all groups."""
        for number, (front, _) in list(self.fronts.items()):
            if group in (None, number):
                self._end(front)

    def _look(self, kind: str, fronts: list[DeviceFront], now: int) -> None:
        with self.lock:
            calls = list(self.first_calls.values())
            if not calls:
                for front in fronts:
                    self._learn_key(front)
                returned = {front.group: len(front.waiting) for front in fronts}
                text = self._dump(kind, entries=False)
        if calls:
            if now - min(calls) > UNWATCHED_NS:
                for front in fronts:
                    self._set_watched(front.group, 0)
            return
        statuses = _statuses(text)
        for front in fronts:
            status = statuses.get(self._keys.get(front.group, ""))
            self._take(front, status, returned[front.group], now)

    def _take(self, front: DeviceFront, status: Status | None, returned: int, now: int) -> None:
        def finish(one: HandedOver) -> None:
            entry = (None, one.sequence, one.issued_ns, one.site, front.group, False, None, None)
            self._ops.finish(entry, now, False, True)
            self._advance(front.group, one.number, now)

        reason = front.take(status, returned, finish, self._untrack)
        if reason:
            self._give_up(front, reason)
        elif front.listed:
            self._set_watched(front.group, 1)

    def _learn_key(self, front: DeviceFront) -> None:
        """Finds the group's key among the entries of nccl2, without asking an event."""
        if front.kind == NCCL2 and front.group not in self._keys and front.waiting:
            _, reference = self.fronts[front.group]
            key = _key_in_entries(self._dump(NCCL2, entries=True), reference())
            if key:
                self._keys[front.group] = key

    def _dump(self, kind: str, *, entries: bool) -> bytes:
        name, more = "_dump_nccl_trace_json", {}
        if kind == NCCL2:
            name, more = "_dump_fr_trace_json", {"backend": NCCL2}
        try:
            found: bytes = getattr(self._core, name)(entries, True, **more)
        except (AttributeError, TypeError, RuntimeError) as error:
            raise NoStatus(f"{type(error).__name__}: {error}"[:200]) from error
        if len(found) > MAX_STATUS:
            raise NoStatus(f"{len(found)} bytes")
        return found

    def _ask_for_error(self, front: DeviceFront, process_group: Any, now: int) -> None:
        asked_ns, known = self._errors.get(front.group, (0, ""))
        if process_group is None or known or now - asked_ns < ERROR_NS:
            return
        try:
            backend = process_group._get_backend(front.device)  # noqa: SLF001
            error = str(backend.get_error().name)
        except (AttributeError, RuntimeError):
            error = _NO_ERROR
        error = "" if error == _NO_ERROR else error
        self._errors[front.group] = now, error
        if error:
            self._note(front.group, front.blind, error)

    def _give_up(self, front: DeviceFront, reason: str) -> None:
        self._end(front, reason)
        self._note(front.group, reason, "")

    def _end(self, front: DeviceFront, reason: str = device_front.DESTROYED) -> None:
        front.give_up(reason, self._untrack)
        self._set_watched(front.group, 0)
        for table in (self.fronts, self._keys, self._errors):
            table.pop(front.group, None)

    def _untrack(self, one: HandedOver) -> None:
        self._ops.untrack(one.sequence)

    # -- the ring

    def _set_watched(self, group: int, value: int) -> None:
        at = device_words(group)
        if group < self._rows:
            self._words[at + 3] = value

    def _advance(self, group: int, number: int, now: int) -> None:
        at = device_words(group)
        if group < self._rows:
            self._words[at + 1] = number
            self._words[at + 2] = now


def device_words(group: int) -> int:
    """Returns the index of a group's first word about its device; see `layout.GROUP_DEVICE`."""
    return (layout.GROUPS_OFFSET + group * layout.GROUP_ROW.size + layout.GROUP_DEVICE) // 8


def _device_backend(process_group: Any) -> tuple[Any, str, str] | None:
    """Returns device, name and key of the only backend that is not for CPUs, or None."""
    found = []
    try:
        for device in process_group._device_types:  # noqa: SLF001
            if device.type != "cpu":
                backend = process_group._get_backend(device)  # noqa: SLF001
                key = getattr(backend, "uid", "")
                found.append((device, str(backend.name()), str(key)))
    except (AttributeError, RuntimeError):
        return None
    return found[0] if len(found) == 1 else None


def _refusal(torch: Any) -> str:
    """Returns why the status must not be read here; "" if it may be read."""
    if getattr(torch.version, "hip", None):
        return "rocm"  # it asks for RCCL's own dump, which may hang
    suffix = getattr(torch._C, "_nccl_version_suffix", None)  # noqa: SLF001
    if callable(suffix) and suffix():
        return "nccl variant"  # ncclx does the same
    return ""


def _statuses(text: bytes) -> dict[str, Status]:
    try:
        found = json.loads(text).get("pg_status") or {}
        return {
            str(key): Status(*(int(one[field]) for field in _FIELDS)) for key, one in found.items()
        }
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise NoStatus(f"{type(error).__name__}: {error}"[:200]) from error


def _key_in_entries(text: bytes, process_group: Any) -> str:
    try:
        name = str(process_group.group_name)
        entries: Iterable[Any] = json.loads(text).get("entries") or ()
        keys = {str(one["pg_id"]) for one in entries if one["process_group"][0] == name}
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, RuntimeError):
        return ""
    return keys.pop() if len(keys) == 1 else ""
