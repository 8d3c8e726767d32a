"""The groups of one rank by its c10d state, look by look: how far they are, what is in progress.

Times are those of looks: an op is known to be no older than the look before, or, if the first look
showed it, to have been issued before (`dated` is False).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.unprepared.c10d_state import (
    KINDS,
    P2P,
    Front,
    counted,
    is_exact,
    last_op_of,
    messages_of,
    number_of,
    numbered_ops,
    outputs_of,
    wire_group,
)
from frtop_probe.unprepared.model import Backend, C10dState, GroupState

STALE_NS: Final = 15_000_000_000
"""For how long the last c10d state counts while no newer one can be read: three
looks at the slowest. Then ops may be over, and numbers tell nothing any more."""
LAG_NS: Final = 2_500_000_000
"""Two looks and a half: what was read earlier may be over, so it is sent with its time."""
MAX_PENDING: Final = 16
"""Per group."""
MIN_PACE_NS: Final = 2_000_000_000
"""Two looks: shorter pauses between ops cannot be measured."""
MAX_GONE: Final = 32
"""Destroyed groups whose last numbers are known."""

_PendingKey = tuple[int, int, str]
"""Group, number in the c10d state, and kind: what makes an op the same one in the next look."""
_GroupKey = tuple[str, tuple[int, ...] | None, str]
"""Name, members and backend: what makes a group the same one in the next look."""


class UnpreparedGroups:
    """The groups of one rank without a recorder."""

    def __init__(self) -> None:
        self.looks = 0
        """The groups that were taken in."""
        self.known: dict[int, wire.Group] = {}
        self.progress: dict[int, wire.GroupProgress] = {}
        self._ids: dict[_GroupKey, int] = {}
        self._newest_id = 0
        self._fronts: dict[int, Front] = {}
        self._pending: dict[_PendingKey, wire.Op] = {}
        self._outputs: dict[_PendingKey, tuple[wire.TensorSpec, ...] | None] = {}
        self._sequence = 0
        self._read_at: dict[int, int] = {}
        self._untold: list[str] = []

    @property
    def any_lives(self) -> bool:
        """Whether there is a group that is not destroyed."""
        return any(not group.gone for group in self.known.values())

    @property
    def pending(self) -> tuple[wire.Op, ...]:
        """The ops in progress, oldest first."""
        return tuple(self._pending.values())

    @property
    def moves(self) -> tuple[object, ...]:
        """A value that changes once any group moves."""
        counts = tuple((front.number, front.messages) for front in self._fronts.values())
        return (*counts, *self._pending)

    @property
    def issued(self) -> int:
        """Ops issued in all groups."""
        return sum(front.number + front.messages for front in self._fronts.values())

    @property
    def living_ids(self) -> dict[tuple[str, str], int]:
        """Ids of groups that exist, by name and backend."""
        return {
            (key[0], key[2]): number
            for key, number in self._ids.items()
            if not self.known[number].gone
        }

    def take(self, c10d: C10dState, at_ns: int, begun_ns: int) -> tuple[str, ...]:
        """Takes in the state of c10d; returns what it does not tell, in words.

        Args:
            c10d: what was read between `begun_ns` and `at_ns`.
            at_ns: what is seen for the first time is known since then.
            begun_ns: what is seen was so then, or later.
        """
        self._untold = []
        self.keep(frozenset(group.name for group in c10d.groups))
        pending: dict[_PendingKey, wire.Op] = {}
        read: set[int] = set()
        for group, backend in counted(c10d):
            number = self._id_of(group, backend)
            if self.known[number].exact and not is_exact(backend):
                continue  # what was counted in the last look cannot be told in this one
            read.add(number)
            self._advance(number, backend, at_ns)
            pending.update(self._pending_of(number, backend, at_ns))
            self.progress[number] = self._progress_of(number, backend, pending)
        self._read_at.update(dict.fromkeys(read, begun_ns))
        # Of a group that this look could not read, the last one holds for a while.
        unread = {
            key: op
            for key, op in self._pending.items()
            if op.group not in read and at_ns - self._read_at[op.group] <= STALE_NS
        }
        ops = sorted((unread | pending).items(), key=lambda item: item[1].sequence)
        self._pending = dict(ops)
        self._outputs = {key: self._outputs.get(key) for key in self._pending}
        self.looks += 1
        return tuple(self._untold)

    def keep(self, names: frozenset[str]) -> None:
        """Marks the groups that exist no longer, and forgets those that are gone for longest.

        A program may make new ones all day. Nothing is in progress in a group that is gone.
        """
        lost = [
            group
            for group, known in self.known.items()
            if not known.gone and known.name not in names
        ]
        if not lost:
            return
        self._pending = {key: op for key, op in self._pending.items() if op.group not in lost}
        for group in lost:
            # At the end: the order of dicts tells for how long groups are gone.
            self.known[group] = structs.replace(self.known.pop(group), gone=True)
        gone = [group for group, known in self.known.items() if known.gone]
        self._forget(set(gone[:-MAX_GONE]))

    def _forget(self, groups: Collection[int]) -> None:
        for known in (self.known, self._fronts, self.progress, self._read_at):
            for group in known.keys() & groups:
                del known[group]
        self._ids = {key: group for key, group in self._ids.items() if group not in groups}

    def age(self, now_ns: int) -> None:
        """Adds the time to progress that was not read for a while."""
        for group, read_ns in self._read_at.items():
            shown = self.progress[group]
            late = now_ns - read_ns > LAG_NS and not self.known[group].gone
            if late and shown.as_of_ns != read_ns:
                self.progress[group] = structs.replace(shown, as_of_ns=read_ns)

    def forget_pending(self) -> None:
        """Forgets the ops in progress: nobody knows whether they still are."""
        self._pending = {}

    def end(self) -> None:
        """The rank has ended: its ops in progress stay as they were."""
        self._outputs.clear()

    def _id_of(self, group: GroupState, backend: Backend) -> int:
        key = group.name, group.ranks, backend.kind
        number = self._ids.get(key)
        if number is None:
            self._newest_id += 1
            number = self._ids[key] = self._newest_id
        known = self.known.get(number)
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
            self.known[number] = wire_group(number, group, backend.kind, exact, timeout_s)
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
                name = self.known[group].name
                self._untold.append(f"group {name}: {kind} in progress, number not known")

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
            dated=self.looks > 0,
        )
