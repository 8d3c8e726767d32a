"""A rank without a recorder: what its process shows from outside, and what changed since.

Its numbers and pending ops come out of torch's own books, one look a second. So times are those
of looks: an op is known to be no older than the look before, or, if the first look showed it, to
have been issued before (`dated` is False).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.flight_history import FlightHistory
from frtop_probe.agent.outside_books import (
    KINDS,
    P2P,
    Front,
    counted,
    is_exact,
    label_of,
    last_op_of,
    messages_of,
    number_of,
    numbered_ops,
    outputs_of,
    reasons_of,
    wire_group,
)
from frtop_probe.agent.outside_identity import NO_GROUPS_YET, identity_of, started_ns
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.outside.discovery.facts import Candidate, FoundJob
from frtop_probe.outside.memory import NO_RIGHT, REPLACED
from frtop_probe.outside.model import Backend, Books, GroupBook
from frtop_probe.outside.worker import Look
from frtop_probe.procfs import ptrace_refusal
from frtop_probe.procfs.exit_status import ExitStatus

MAX_PENDING: Final = 16
"""Per group; `MAX_PENDING_OF_RANK` in all its groups."""
MAX_PENDING_OF_RANK: Final = 64
MIN_PACE_NS: Final = 2_000_000_000
"""Two looks: shorter pauses between ops cannot be measured."""
STALE_NS: Final = 15_000_000_000
"""For how long the last books that were read stand for those that are not readable now: three
looks at the slowest. Then ops may be over, and numbers tell nothing any more."""
FIRST_READS: Final = 4
"""How often one waits for a ring that was never read: its rank was chosen a moment ago."""
MAX_GONE: Final = 32
"""Destroyed groups whose last numbers are known."""

_PendingKey = tuple[int, int, str]
"""Group, number in the books, and kind: what makes an op the same one in the next look."""
_GroupKey = tuple[str, tuple[int, ...] | None, str]
"""Name, members and backend: what makes a group the same one in the next look."""


class OutsideRank(TrackedRank):
    """A rank that never heard of frtop."""

    def __init__(self, key: int, candidate: Candidate, job: FoundJob, pidfd: int | None) -> None:
        super().__init__(key, candidate.pid, candidate.start_ticks, lives=True, pidfd=pidfd)
        self._candidate = candidate
        self._found = job
        self._started_ns = started_ns(candidate.start_ticks)
        self._books: Books | None = None
        self._sent = wire.RankUpdate(key=key)
        self._ids: dict[_GroupKey, int] = {}
        self._newest_id = 0
        self._groups: dict[int, wire.Group] = {}
        self._fronts: dict[int, Front] = {}
        self._pending: dict[_PendingKey, wire.Op] = {}
        self._outputs: dict[_PendingKey, tuple[wire.TensorSpec, ...] | None] = {}
        self._progress: dict[int, wire.GroupProgress] = {}
        self._notes: tuple[str, ...] = ()
        self._transports: tuple[wire.Transport, ...] | None = None
        self._names: dict[int, str] = {}
        self._sequence = 0
        self._looks = 0
        self._seen_ns = 0
        self._read_ns = 0
        self.flight = FlightHistory()
        self.read_ring: Callable[[int], Awaitable[None]] | None = None
        """Reads its Flight Recorder, the newest entries, if that can be done soon."""
        self.first_seen_ns = time.monotonic_ns()
        self.box_folder: Callable[[], str] | None = None
        """Where its black box goes, if somebody watches it now."""
        self._blocks: list[wire.BlockSums] = []
        self._read_at: dict[int, int] = {}

    @property
    def name(self) -> str:
        return f"process {self.pid}"

    @property
    def group_names(self) -> Mapping[int, str]:
        return self._names

    def learn(self, candidate: Candidate, job: FoundJob) -> None:
        """Takes in what a later search found, which may know what an early one did not.

        A rank that has named its groups keeps its job: a launcher that ended must not move it.
        """
        named = self._candidate.rank is not None or candidate.rank is None
        if not self.lives or (self._lives_in_groups and named):
            return
        if (candidate, job.identity, job.name) != (
            self._candidate,
            self._found.identity,
            self._found.name,
        ):
            self._candidate, self._found = candidate, job
            if self._identity is not None:
                self._identity = self._identify(self._books)

    def take(self, look: Look, at_ns: int) -> None:
        """Takes in a look at `at_ns` (monotonic, ns).

        One that could not read the books leaves what the last one showed, and says why; after
        `STALE_NS` of them nothing is left that only books can tell.
        """
        books = look.books
        replaced = books is not None and books.start_ticks not in (0, self.start_ticks)
        if not self.lives or replaced or look.reason == REPLACED:
            return  # the next tick handles the end
        self._seen_ns = at_ns
        if look.transports is not None:
            self._transports = tuple(wire.Transport(o.name, o.sign) for o in look.transports)
        self._notes = tuple(map(self._explained, dict.fromkeys(reasons_of(look))))
        if books is not None and books.reason in NO_GROUPS_YET:
            self._keep_groups(frozenset())
            if self._looks:  # it had some
                self._notes = (wire.LEFT_GROUPS,)
        if books is None or not books.groups:
            if not self._lives_in_groups:
                self._identity = self._identify(books)
            return
        self._books, self._read_ns = books, at_ns
        self._identity = self._identify(books)
        self._names = {group.address: label_of(group) for group in books.groups}
        self._take_groups(books, at_ns)
        self._looks += 1

    @property
    def _lives_in_groups(self) -> bool:
        return any(not group.gone for group in self._groups.values())

    def _explained(self, reason: str) -> str:
        """With the setting that is in the way, and what changes it."""
        return f"{reason}: {ptrace_refusal.explain(self.pid)}" if reason == NO_RIGHT else reason

    def _take_groups(self, books: Books, at_ns: int) -> None:
        self._keep_groups(frozenset(group.name for group in books.groups))
        pending: dict[_PendingKey, wire.Op] = {}
        read: set[int] = set()
        for group, backend in counted(books):
            number = self._id_of(group, backend)
            if self._groups[number].exact and not is_exact(backend):
                continue  # what was counted in the last look cannot be told in this one
            read.add(number)
            self._advance(number, backend, at_ns)
            pending.update(self._pending_of(number, backend, at_ns))
            self._progress[number] = self._progress_of(number, backend, pending)
        self._read_at.update(dict.fromkeys(read, at_ns))
        # Of a group that this look could not read, the last one holds for a while.
        unread = {
            key: op
            for key, op in self._pending.items()
            if op.group not in read and at_ns - self._read_at[op.group] <= STALE_NS
        }
        ops = sorted((unread | pending).items(), key=lambda item: item[1].sequence)
        self._pending = dict(ops)
        self._outputs = {key: self._outputs.get(key) for key in self._pending}

    def _keep_groups(self, names: frozenset[str]) -> None:
        """Marks the groups that exist no longer, and forgets those that are gone for longest.

        A program may make new ones all day. Nothing is in progress in a group that is gone.
        """
        lost = [
            group
            for group, known in self._groups.items()
            if not known.gone and known.name not in names
        ]
        if not lost:
            return
        self._pending = {key: op for key, op in self._pending.items() if op.group not in lost}
        for group in lost:
            # At the end: the order of dicts tells for how long groups are gone.
            self._groups[group] = structs.replace(self._groups.pop(group), gone=True)
        gone = [group for group, known in self._groups.items() if known.gone]
        self._forget(set(gone[:-MAX_GONE]))

    def _forget(self, groups: Collection[int]) -> None:
        for known in (self._groups, self._fronts, self._progress, self._read_at):
            for group in known.keys() & groups:
                del known[group]
        self._ids = {key: group for key, group in self._ids.items() if group not in groups}

    def _expire(self, now_ns: int) -> None:
        """Says that books are not readable once they have not been for a while."""
        old = self._read_ns and now_ns - self._read_ns > STALE_NS
        if old and self._lives_in_groups and self._identity is not None and self._identity.books:
            self._identity = structs.replace(self._identity, books=False)
            self._pending = {}

    def _identify(self, books: Books | None) -> wire.Identity:
        return identity_of(
            self._candidate, self._found, books, earlier=self._books, started_ns=self._started_ns
        )

    def _id_of(self, group: GroupBook, backend: Backend) -> int:
        key = group.name, group.ranks, backend.kind
        number = self._ids.get(key)
        if number is None:
            self._newest_id += 1
            number = self._ids[key] = self._newest_id
        known = self._groups.get(number)
        if known is not None and known.gone:  # made anew with the same name and members
            self._fronts.pop(number, None)
            known = None
        exact = is_exact(backend) or (known is not None and known.exact)
        timeout_s = backend.timeout_s or 0.0
        if known is None or (known.description, known.exact, known.timeout_s) != (
            group.description,
            exact,
            timeout_s,
        ):
            self._groups[number] = wire_group(number, group, backend.kind, exact, timeout_s)
        return number

    def _advance(self, group: int, backend: Backend, at_ns: int) -> None:
        number = number_of(backend)
        if number is not None:
            messages = messages_of(backend)
            front = self._fronts.get(group)
            if front is None or number < front.number:  # made anew with the same name
                front = self._fronts[group] = Front(number, messages, at_ns)
            front.advance(number, messages, at_ns)

    def _pending_of(
        self, group: int, backend: Backend, at_ns: int
    ) -> Iterator[tuple[_PendingKey, wire.Op]]:
        numbered = list(numbered_ops(backend))
        for work, number in numbered[:MAX_PENDING]:
            kind = KINDS.get(work.op, work.op)
            key = group, work.number, kind
            known = self._pending.get(key)
            if known is not None and number in (None, known.number):
                yield key, self._with_outputs(key, known, outputs_of(work, kind))
            elif number is not None:
                self._outputs[key] = outputs_of(work, kind)
                yield key, self._op(group, number, kind, at_ns, work.timeout_s)
            else:
                name = self._groups[group].name
                self._notes = (*self._notes, f"group {name}: {kind} in progress, number not known")

    def _with_outputs(
        self, key: _PendingKey, op: wire.Op, outputs: tuple[wire.TensorSpec, ...] | None
    ) -> wire.Op:
        """The op with its output tensors, once two looks have shown the same ones.

        Memory that was freed while it was read may hold another tensor, and shapes convict.
        """
        before, self._outputs[key] = self._outputs.get(key), outputs
        signature = op.signature
        if not outputs or outputs != before or signature is None or signature.outputs:
            return op
        return structs.replace(op, signature=structs.replace(signature, outputs=outputs))

    def _progress_of(
        self, group: int, backend: Backend, pending: Mapping[_PendingKey, wire.Op]
    ) -> wire.GroupProgress:
        """How far a group is; its last op is over unless it is in progress, or nobody can tell."""
        front = self._fronts[group]
        ops = (op for op in pending.values() if op.group == group and not op.p2p)
        last = next((op for op in ops if op.number == front.number), None)
        if last is None:
            last = last_op_of(group, front, backend)
        return wire.GroupProgress(group, front.number, front.messages, front.since_ns, last)

    def _op(
        self, group: int, number: int, kind: str, at_ns: int, timeout_s: float | None
    ) -> wire.Op:
        self._sequence += 1
        front = self._fronts.get(group)
        ops = max(0, front.ops - 1) if front is not None else 0  # the last one is this one
        return wire.Op(
            sequence=self._sequence,
            group=group,
            number=number,
            signature=wire.Signature(kind),
            site=None,
            issued_ns=at_ns,
            p2p=kind in P2P,
            timeout_ms=int(1000 * (timeout_s or 0)),
            usual_ns=max(MIN_PACE_NS, front.longest_ns) if front is not None and ops else 0,
            usual_count=ops,
            dated=self._looks > 0,
        )

    def update(self, now_ns: int) -> wire.RankUpdate | None:
        if self._identity is None:
            return None  # not looked at yet
        self._expire(now_ns)
        self._new_process()
        full, sent = self.full(), self._sent
        known = {group.id: group for group in sent.groups}
        progress = {front.group: front for front in sent.group_progress}
        fresh = wire.RankUpdate(
            key=self.key,
            identity=full.identity if full.identity != sent.identity else None,
            groups=tuple(one for one in full.groups if one != known.get(one.id)),
            group_progress=tuple(
                one for one in full.group_progress if one != progress.get(one.group)
            ),
            pending=full.pending if full.pending != sent.pending else None,
            pending_more=full.pending_more,
            process=full.process if full.process != sent.process else None,
            # An empty tuple means that nothing has changed.
            notes=(full.notes or ("",)) if full.notes != sent.notes else (),
            transports=full.transports if full.transports != sent.transports else None,
            blocks=tuple(self._blocks),
            gauges=self._new_gauges(),
        )
        self._blocks.clear()
        self._sent = full
        nothing = wire.RankUpdate(key=self.key, pending_more=full.pending_more)
        return None if fresh == nothing else fresh

    def end(self, now_ns: int, oom_kills: int) -> wire.RankUpdate:
        self.lives = False
        self.died_ns = self.died_ns or now_ns
        self._identity = self._identity or self._identify(None)
        # Nobody told how the program ended: only the exit status does.
        self.exit_info = self._exit_info(now_ns, oom_kills, clean=False)
        self._process = self._books = None
        self._outputs.clear()
        self._names.clear()
        self.release()
        return self.full()

    @property
    def record(self) -> str:
        return self.box_folder() if self.box_folder is not None else ""

    @property
    def progress(self) -> tuple[object, ...]:
        counts = tuple((front.number, front.messages) for front in self._fronts.values())
        return (*counts, *self._pending)

    @property
    def has_failed(self) -> bool:
        """By its exit status; where the kernel does not tell, it failed if ops were in progress."""
        ended = self.exit or ExitStatus()
        unknown = ended == ExitStatus()
        return bool(self._pending) if unknown else ended != ExitStatus(code=0)

    def full(self) -> wire.RankUpdate:
        pending = tuple(self._pending.values())
        return wire.RankUpdate(
            key=self.key,
            identity=self._identity,
            groups=tuple(self._groups.values()),
            group_progress=tuple(self._progress.values()),
            pending=pending[:MAX_PENDING_OF_RANK],
            pending_more=max(0, len(pending) - MAX_PENDING_OF_RANK),
            process=self._process,
            exit_info=self.exit_info,
            notes=self._notes,
            transports=self._transports,
            blocks=self.flight.recent_sums(),
            gauges=self.gauges,
        )

    def last_sign_ns(self) -> int:
        return self._seen_ns or time.monotonic_ns()

    def status(self) -> None:
        return None

    async def read_first(self, limit: int) -> None:
        """The same, until there was a first read, as far as that is soon."""
        for _ in range(FIRST_READS):
            await self.read_ops(limit)
            if self.flight.read_ns:
                break

    async def read_ops(self, limit: int) -> None:
        if self.read_ring is not None and self.lives:
            await self.read_ring(limit)

    @property
    def ops_note(self) -> str:
        return self.flight.note

    def recent_ops(self, limit: int) -> tuple[tuple[wire.Op, ...], int]:
        return self.flight.recent(limit)

    def take_ring(self, look: Look, at_ns: int, wall_offset_ns: int) -> None:
        """Takes in a look with rings, and books before and after them."""
        if look.books is None or look.books.start_ticks in (0, self.start_ticks):
            ids = {(key[0], key[2]): number for key, number in self._ids.items()
                   if not self._groups[number].gone}  # fmt: skip
            self._blocks += self.flight.take(look, ids, at_ns, wall_offset_ns)

    @property
    def issued(self) -> int:
        """Ops issued in all groups, as the books have it: a ring has something new once it grew."""
        return sum(front.number + front.messages for front in self._fronts.values())
