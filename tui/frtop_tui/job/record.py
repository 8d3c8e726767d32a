"""One rank as it is being heard: merges what its agent says, and shows it frozen."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from frtop_probe import wire
from frtop_probe.ring.layout import State
from frtop_tui.job.clock import HostClock
from frtop_tui.job.model import ObservedRank, RankState

SILENT_AFTER_NS = 1_500_000_000
"""A beat comes four times a second: six missed ones are no scheduling hiccup."""
LOOKS_APART_NS = 2_000_000_000
"""Two looks closer than this say nothing about progress."""
LOOKS_KEPT = 12
FRESH_NS = 1_000_000_000
_TOO_CLOSE_NS = 400_000_000


@dataclass(slots=True, eq=False)
class RankRecord:
    """Mutable counterpart of a `ObservedRank`; `view` hands out the same one until it changes."""

    host: str
    clock: HostClock
    key: int
    identity: wire.Identity
    heard_ns: int = 0
    status: wire.RankStatus | None = None
    groups: dict[int, wire.Group] = field(default_factory=dict)
    group_progress: dict[int, wire.GroupProgress] = field(default_factory=dict)
    pending: tuple[wire.Op, ...] = ()
    pending_more: int = 0
    process: wire.Process | None = None
    exception: wire.UncaughtException | None = None
    exit_info: wire.ExitInfo | None = None
    notes: tuple[str, ...] = ()
    snapshot: wire.Snapshot | None = None
    prior_snapshot: wire.Snapshot | None = None
    stacks_taken_ns: int = 0
    tensors: wire.TensorsResponse | None = None
    _looks: deque[wire.Snapshot] = field(default_factory=lambda: deque(maxlen=LOOKS_KEPT))
    _view: ObservedRank | None = None
    _posture_was: RankState | None = None
    _posture_since: int = 0

    def take(self, update: wire.RankUpdate, now_ns: int) -> None:
        """Merges what is new; dicts are replaced, never changed, as views share them."""
        self._view = None
        self.heard_ns = now_ns
        if update.identity is not None:
            self.identity = update.identity
        if update.status is not None:
            self.status = update.status
        if update.groups:
            self.groups = {**self.groups, **{group.id: group for group in update.groups}}
        if update.group_progress:
            self.group_progress = {
                **self.group_progress,
                **{front.group: front for front in update.group_progress},
            }
        if update.pending is not None:
            self.pending = update.pending
            self.pending_more = update.pending_more
        self.process = update.process or self.process
        self.exception = update.exception or self.exception
        self.exit_info = update.exit_info or self.exit_info
        self.notes = update.notes or self.notes

    def keep_looks_of(self, other: RankRecord) -> None:
        """A full state replaces everything but what was asked for beside it."""
        self.tensors = other.tensors
        self.snapshot, self.prior_snapshot = other.snapshot, other.prior_snapshot
        self.stacks_taken_ns, self._looks = other.stacks_taken_ns, other._looks

    def apply_tensors(self, answer: wire.TensorsResponse) -> None:
        """What the rank itself answered, or why it did not."""
        self._view = None
        self.tensors = answer

    def apply_snapshot(self, look: wire.Snapshot) -> None:
        """The newest look, with the last stacks there are, and an older one to compare."""
        self._view = None
        if look.status is not None and self.status is not None:
            newer = look.status.beat_ns >= self.status.beat_ns
            self.status = look.status if newer else self.status
        if any(dump.threads for dump in look.dumps):
            self.stacks_taken_ns = look.at_ns
        past = self._looks
        if len(past) > 1 and past[-1].at_ns - past[-2].at_ns < _TOO_CLOSE_NS:
            if look.dumps or not past[-1].dumps:
                past[-1] = look
        else:
            past.append(look)
        self.snapshot = _with_stacks(look, self.snapshot, self.identity.pid)
        old = [past for past in self._looks if look.at_ns - past.at_ns >= LOOKS_APART_NS]
        with_stacks = [past for past in old if past.dumps]
        comparable = with_stacks or old
        self.prior_snapshot = comparable[-1] if comparable else None

    def view(self, now_ns: int) -> ObservedRank:
        posture, natural_ns = self._posture()
        last = self._view
        if last is not None and last.state == posture and last.clock_ns == self.clock.offset:
            return last
        since = natural_ns or now_ns
        if natural_ns == 0 and self._posture_was == posture:
            since = self._posture_since
        self._posture_was, self._posture_since = posture, since
        self._view = ObservedRank(
            rank=self.identity.rank,
            host=self.host,
            key=self.key,
            identity=self.identity,
            state=posture,
            state_since_ns=since,
            heard_ns=self.heard_ns,
            clock_ns=self.clock.offset,
            status=self.status,
            groups=self.groups,
            group_progress=self.group_progress,
            pending=self.pending,
            pending_more=self.pending_more,
            process=self._process_now(),
            exception=self.exception,
            exit_info=self.exit_info,
            snapshot=self.snapshot,
            prior_snapshot=self.prior_snapshot,
            notes=self.notes,
            stacks_taken_ns=self.stacks_taken_ns,
            tensors=self.tensors,
        )
        return self._view

    def changes_ns(self) -> int:
        """The host's time at which the view changes if nothing more is heard, 0 for never."""
        last_ns, moments = self.clock.last_ns, []
        if self.status is not None and self.status.beat_ns:
            moments.append(self.status.beat_ns + SILENT_AFTER_NS + 1)
        if self.snapshot is not None:
            moments.append(self.snapshot.at_ns + FRESH_NS)
        return min((moment for moment in moments if moment > last_ns), default=0)

    def _posture(self) -> tuple[RankState, int]:
        """What can be said without the others, and since when (0: since it was noticed)."""
        clock = self.clock
        if self.exit_info is not None:
            return (
                "done" if ended_cleanly(self.exit_info, self.exception) else "dead",
                self.exit_info.at_ns + clock.offset,
            )
        if self.exception is not None and self.exception.main:
            # The program is over, if not its process: that may take a while to go.
            return "dead", self.exception.at_ns + clock.offset
        if clock.silent:
            return "unheard", clock.heard_ns
        process = self._process_now()
        if process is not None and process.state in ("T", "t"):
            return "stopped", self._beat_since()
        present = self.status
        # The agent's own clock at its last update, not ours: a late update is no silence.
        if (
            present is not None
            and present.beat_ns
            and present.state in (State.STARTING, State.ON)
            and clock.last_ns - present.beat_ns > SILENT_AFTER_NS
        ):
            return "silent", self._beat_since()
        return ("moving", 0) if self.groups else ("starting", 0)

    def _process_now(self) -> wire.Process | None:
        """From a fresh look, else as the agent last told.

        The agent tells only changes to what it told before: what a look saw in between
        must not stay for ever.
        """
        look = self.snapshot
        if look is not None and self.clock.last_ns - look.at_ns < FRESH_NS:
            own = next((p for p in look.processes if p.pid == self.identity.pid), None)
            return own or self.process
        return self.process

    def _beat_since(self) -> int:
        if self.status is None or not self.status.beat_ns:
            return 0
        return self.status.beat_ns + self.clock.offset


def ended_cleanly(ending: wire.ExitInfo, raised: wire.UncaughtException | None) -> bool:
    """Exit status 0, or unknown but seen to end in an orderly way without an exception."""
    if ending.signal or ending.exit_code:
        return False
    if ending.exit_code == 0:
        return True
    return ending.clean and not (raised is not None and raised.main)


def _with_stacks(look: wire.Snapshot, last: wire.Snapshot | None, own_pid: int) -> wire.Snapshot:
    """`look`, with the last stacks of each of its processes for which it has none."""
    dumps = {dump.pid: dump for dump in look.dumps}
    if last is not None:
        alive = {process.pid for process in look.processes} or {own_pid}
        for dump in last.dumps:
            taken = dumps.get(dump.pid)
            if dump.pid in alive and (taken is None or (dump.threads and not taken.threads)):
                dumps[dump.pid] = dump
    ordered = sorted(dumps.values(), key=lambda dump: dump.pid != own_pid)
    return msgspec.structs.replace(look, dumps=tuple(ordered))
