"""The record of one rank: merges what its agent sends into an `ObservedRank`."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.layout import MAX_DESTROYED, State
from frtop_tui.job.clock import HostClock
from frtop_tui.job.model import (
    RECORDER,
    UNPREPARED,
    UNPREPARED_STACKS,
    Evidence,
    ObservedRank,
    RankState,
)
from frtop_tui.job.reported import merged_values

SILENT_AFTER_NS: Final = 1_500_000_000
"""The recorder writes four heartbeats a second: six missing ones are no scheduling delay."""
COMPARABLE_NS: Final = 2_000_000_000
"""Snapshots closer together than this show nothing about progress."""
MAX_SNAPSHOTS: Final = 12
FRESH_NS: Final = 1_000_000_000
"""Up to this age, the process of a snapshot overrides that of an update."""
_TOO_CLOSE_NS: Final = 400_000_000
OneRankAnswer = wire.TensorsResponse | wire.NativeStacksResponse | wire.OutputResponse
_FIELDS: Final[dict[type[wire.Response], str]] = {
    wire.TensorsResponse: "tensors",
    wire.NativeStacksResponse: "native",
    wire.OutputResponse: "output",
}


class RankRecord:
    """One process of a job. `view` hands out the same object until something changes."""

    __slots__ = ("_changes", "_latest", "_process", "_snapshots", "clock", "host", "key")

    def __init__(self, host: str, clock: HostClock, key: int, identity: wire.Identity) -> None:
        self.host = host
        self.clock = clock
        self.key = key
        self._latest = ObservedRank(identity.rank, host, key, identity, "starting", 0, 0, 0)
        self._changes: dict[str, Any] = {}
        """Fields received since `_latest` was made: one copy per frame, not per message."""
        self._process: wire.Process | None = None  # as in the agent's updates
        self._snapshots: list[wire.Snapshot] = []  # an empty deque takes 600 bytes

    @property
    def latest(self) -> ObservedRank:
        """All fields as last received; state, clock and process come from the last view."""
        if self._changes:
            self._latest = replace(self._latest, **self._changes)
            self._changes.clear()
        return self._latest

    @property
    def identity(self) -> wire.Identity:
        return self._changes.get("identity") or self._latest.identity

    @property
    def ended(self) -> bool:
        return "exit_info" in self._changes or self._latest.exit_info is not None

    def apply(self, update: wire.RankUpdate, now_ns: int) -> None:
        """Merges an update; dicts are replaced, never changed, as views share them."""
        changes = self._changes
        changes["reported_ns"] = now_ns
        self._apply_source(update)
        if update.status is not None:
            changes["status"] = update.status
        self._apply_groups(update)
        self._apply_messages(update)
        self._apply_reported(update)
        if update.pending is not None:
            changes["pending"] = update.pending
            changes["pending_more"] = update.pending_more
        if update.exception is not None:
            changes["exception"] = update.exception
        if update.exit_info is not None:
            changes["exit_info"] = update.exit_info
        if update.notes:
            changes["notes"] = tuple(filter(None, update.notes))  # ("",): none any more
        if update.gauges is not None:
            changes["gauges"] = update.gauges
        if update.process is not None:
            # Usually the view shows exactly this: setting it here saves a copy.
            self._process = changes["process"] = update.process

    def _apply_groups(self, update: wire.RankUpdate) -> None:
        changes = self._changes
        fronts = changes.get("group_progress") or self._latest.group_progress
        if update.groups:
            groups = {group.id: group for group in update.groups}
            all_known = {**(changes.get("groups") or self._latest.groups), **groups}
            remaining = changes["groups"] = _without_oldest_gone(all_known)
            if remaining is not all_known:
                dropped = all_known.keys() - remaining.keys()
                fronts = {number: one for number, one in fronts.items() if number not in dropped}
                changes["group_progress"] = fronts
        if update.group_progress:
            moved = {progress.group: progress for progress in update.group_progress}
            changes["group_progress"] = {**fronts, **moved}

    def _apply_reported(self, update: wire.RankUpdate) -> None:
        """Adds values that the job reported."""
        if update.reported:
            known = self._changes.get("reported", self._latest.reported)
            self._changes["reported"] = merged_values(known, update.reported)

    def _apply_messages(self, update: wire.RankUpdate) -> None:
        """Takes in message counts, except for groups with more messages since."""
        before = self._changes.get("messages", self._latest.messages)
        known = before if update.messages is None else update.messages
        if not (known or before):
            return
        fronts = self._changes.get("group_progress") or self._latest.group_progress
        valid = tuple(m for m in known if m.group in fronts and m.p2p == fronts[m.group].p2p)
        if valid != before:
            self._changes["messages"] = valid

    def _apply_source(self, update: wire.RankUpdate) -> None:
        """Takes in the rank's identity, and what can be known about it."""
        changes = self._changes
        if update.identity is not None:
            changes["identity"], changes["rank"] = update.identity, update.identity.rank
        if update.transports is not None:
            changes["transports"] = update.transports
        if update.identity is not None or update.transports is not None:
            changes["evidence"] = self._evidence()

    def _evidence(self) -> Evidence:
        seen = _evidence(self.identity)
        beside = self._changes.get("transports", self._latest.transports)
        return replace(seen, has_transports=False) if beside else seen

    def adopt_responses(self, other: RankRecord) -> None:
        """Takes over the results of requests: a full state contains only what updates bring."""
        old = other.latest
        self._changes.update(
            tensors=old.tensors,
            native=old.native,
            output=old.output,
            snapshot=old.snapshot,
            prior_snapshot=old.prior_snapshot,
            stacks_taken_ns=old.stacks_taken_ns,
        )
        self._snapshots = other._snapshots

    def apply_answer(self, response: OneRankAnswer) -> None:
        """Takes in the rank's tensors, native stacks or output, or why there are none."""
        self._changes[_FIELDS[type(response)]] = response

    def apply_snapshot(self, snapshot: wire.Snapshot) -> None:
        """Takes in a snapshot; keeps the last stacks, and an older snapshot to compare."""
        latest, changes = self.latest, self._changes
        newer, status = snapshot.status, latest.status
        if newer is not None and status is not None and newer.heartbeat_ns >= status.heartbeat_ns:
            changes["status"] = newer
        if any(dump.threads for dump in snapshot.dumps):
            changes["stacks_taken_ns"] = snapshot.at_ns
        past = self._snapshots
        if len(past) > 1 and past[-1].at_ns - past[-2].at_ns < _TOO_CLOSE_NS:
            if snapshot.dumps or not past[-1].dumps:
                past[-1] = snapshot
        else:
            past.append(snapshot)
            del past[:-MAX_SNAPSHOTS]
        old = [one for one in past if snapshot.at_ns - one.at_ns >= COMPARABLE_NS]
        comparable = [one for one in old if one.dumps] or old
        changes["snapshot"] = _with_last_stacks(snapshot, latest.snapshot, latest.identity.pid)
        changes["prior_snapshot"] = comparable[-1] if comparable else None

    def view(self, now_ns: int) -> ObservedRank:
        latest, offset = self.latest, self.clock.offset
        process = self._process_now(latest)
        state, since_ns = self._state(latest, process)
        if not since_ns:
            since_ns = (latest.state == state and latest.state_since_ns) or now_ns
        derived = state, since_ns, offset, process
        if derived != (latest.state, latest.state_since_ns, latest.clock_ns, latest.process):
            self._latest = latest = replace(
                latest, state=state, state_since_ns=since_ns, clock_ns=offset, process=process
            )
        return latest

    def changes_ns(self) -> int:
        """The host's time at which the view changes without a message, 0 if never."""
        latest, last_ns = self.latest, self.clock.last_ns
        status, snapshot = latest.status, latest.snapshot
        silent_ns = (
            status.heartbeat_ns + SILENT_AFTER_NS + 1 if status and status.heartbeat_ns else 0
        )
        stale_ns = snapshot.at_ns + FRESH_NS if snapshot is not None else 0
        if stale_ns <= last_ns:
            return silent_ns if silent_ns > last_ns else 0
        return min(silent_ns, stale_ns) if silent_ns > last_ns else stale_ns

    def _state(self, rank: ObservedRank, process: wire.Process | None) -> tuple[RankState, int]:
        """The state by this rank's own evidence, and when it began (0: when we noticed it)."""
        clock, status = self.clock, rank.status
        if rank.exit_info is not None:
            return (
                "done" if ended_cleanly(rank.exit_info, rank.exception) else "dead",
                rank.exit_info.at_ns + clock.offset,
            )
        if rank.exception is not None and rank.exception.main:
            # The program is over; its process may take a while to end.
            return "dead", rank.exception.at_ns + clock.offset
        if clock.silent:
            return "unreachable", clock.reported_ns
        heartbeat_ns = status.heartbeat_ns if status is not None else 0
        if process is not None and process.state in ("T", "t"):
            return "stopped", heartbeat_ns and heartbeat_ns + clock.offset
        # On the agent's clock at its last update, not on ours: a late update is no silence.
        if (
            status is not None
            and heartbeat_ns
            and status.state in (State.STARTING, State.ON)
            and clock.last_ns - heartbeat_ns > SILENT_AFTER_NS
        ):
            return "silent", heartbeat_ns + clock.offset
        return ("moving", 0) if rank.groups else ("starting", 0)

    def _process_now(self, rank: ObservedRank) -> wire.Process | None:
        """The process from a fresh snapshot, else from the agent's updates.

        The agent sends only changes, so the process of a snapshot must not stay forever.
        """
        snapshot, pid = rank.snapshot, rank.identity.pid
        if snapshot is not None and self.clock.last_ns - snapshot.at_ns < FRESH_NS:
            own = next((one for one in snapshot.processes if one.pid == pid), None)
            return own or self._process
        return self._process


def ended_cleanly(exit_info: wire.ExitInfo, exception: wire.UncaughtException | None) -> bool:
    """Whether the exit status is 0, or unknown after an orderly end without an exception."""
    if exit_info.signal or exit_info.exit_code:
        return False
    if exit_info.exit_code == 0:
        return True
    return exit_info.clean and not (exception is not None and exception.main)


def _evidence(identity: wire.Identity) -> Evidence:
    if identity.prepared:
        return RECORDER
    return UNPREPARED if identity.c10d_readable else UNPREPARED_STACKS


def _without_oldest_gone(groups: dict[int, wire.Group]) -> dict[int, wire.Group]:
    """Drops all but the last destroyed groups: a program may make new ones all day."""
    gone = [number for number, group in groups.items() if group.gone]
    old = set(gone[:-MAX_DESTROYED])
    return {n: group for n, group in groups.items() if n not in old} if old else groups


def _with_last_stacks(
    snapshot: wire.Snapshot, last: wire.Snapshot | None, own_pid: int
) -> wire.Snapshot:
    """Adds the last stacks of each of its processes that the snapshot lacks."""
    dumps = {dump.pid: dump for dump in snapshot.dumps}
    if last is not None:
        alive = {process.pid for process in snapshot.processes} or {own_pid}
        for dump in last.dumps:
            taken = dumps.get(dump.pid)
            if dump.pid in alive and (taken is None or (dump.threads and not taken.threads)):
                dumps[dump.pid] = dump
    ordered = sorted(dumps.values(), key=lambda dump: dump.pid != own_pid)
    return replace(snapshot, dumps=tuple(ordered))
