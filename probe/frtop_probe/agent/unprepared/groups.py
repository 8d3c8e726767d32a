"""Tracks the groups of one unprepared rank from look to look: progress, and ops in progress.

`UnpreparedGroups` remembers; the functions translate one c10d state into wire terms. Times are
those of looks: the look before an op was first seen bounds its age. If the first look at its group
showed it, or none was possible for long, it was issued at some earlier time (`dated` is False).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold_short
from frtop_probe.unprepared.model import Backend, C10dState, GroupState, Work
from frtop_probe.unprepared.worker import Look

STALE_NS: Final = 15_000_000_000
"""How long the last c10d state is valid while no newer one can be read: three of the slowest looks.
After that, ops may be over and numbers outdated."""
LAG_NS: Final = 2_500_000_000
"""Two and a half looks: an older state may be outdated, so its time is sent with it."""
MAX_PENDING: Final = 16
"""Most ops in progress per group."""
MIN_PACE_NS: Final = 2_000_000_000
"""Two looks: shorter pauses between ops cannot be measured."""
MAX_GONE: Final = 32
"""Most destroyed groups whose last numbers are kept."""

_PendingKey = tuple[int, int, str]
"""Group, number in the c10d state, and kind: the next look recognises an op by these."""
_GroupKey = tuple[str, tuple[int, ...] | None, str]
"""Name, members and backend: the next look recognises a group by these."""
KINDS: Final = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather": "all_gather",
    "allgather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "allgather_coalesced": "all_gather_coalesced",
    "alltoall_base": "all_to_all_single",
    "alltoall": "all_to_all",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_base": "reduce_scatter_tensor",
}
"""Names as users write them, if c10d's `OpType` differs."""
GLOO: Final = "gloo"
"""The backend whose state lists all collectives in progress, so all others are over."""
P2P: Final = frozenset({"send", "recv", "recvanysource"})
_SIZED: Final = frozenset({
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "scatter",
})  # fmt: skip
"""Gloo kinds whose outputs must agree on all members: in-place tensors, and lists with one tensor
per member. `gather` has outputs only at its root, and outputs of `all_to_all` may differ."""
_MOST_OUTPUTS: Final = 15
"""Most outputs in a complete list: the reader describes only one more."""
_PORT: Final = re.compile(r"(.+):(\d{1,5})")


class UnpreparedGroups:
    """The groups of one rank without a recorder."""

    def __init__(self) -> None:
        self.looks = 0
        """Looks so far."""
        self.known: dict[int, wire.Group] = {}
        self.progress: dict[int, wire.GroupProgress] = {}
        self._ids: dict[_GroupKey, int] = {}
        self._newest_id = 0
        self._fronts: dict[int, Front] = {}
        self._pending: dict[_PendingKey, wire.Op] = {}
        self._seen: dict[_PendingKey, wire.Op] = {}
        """Ops in progress when their group was last read, however long ago."""
        self._outputs: dict[_PendingKey, tuple[wire.TensorSpec, ...] | None] = {}
        self._sequence = 0
        self._read_at: dict[int, int] = {}
        self._untold: list[str] = []

    @property
    def any_lives(self) -> bool:
        """Whether a group exists."""
        return any(not group.gone for group in self.known.values())

    @property
    def pending(self) -> tuple[wire.Op, ...]:
        """The ops in progress, oldest first."""
        return tuple(self._pending.values())

    @property
    def moves(self) -> tuple[object, ...]:
        """A value that changes when a group moves."""
        counts = tuple((front.number, front.messages) for front in self._fronts.values())
        return (*counts, *self._pending)

    @property
    def issued(self) -> int:
        """Ops issued so far in all groups."""
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
        """Adds c10d's state as read from `begun_ns` to `at_ns`; returns in words what it lacks."""
        self._untold = []
        self.keep(frozenset(group.name for group in c10d.groups))
        pending: dict[_PendingKey, wire.Op] = {}
        read: set[int] = set()
        for group, backend in counted(c10d):
            number = self._id_of(group, backend)
            if self.known[number].exact and not is_exact(backend):
                continue  # this look lacks what the last one counted
            read.add(number)
            self._advance(number, backend, at_ns)
            pending.update(self._pending_of(number, backend, at_ns))
            self.progress[number] = self._progress_of(number, backend, pending)
        self._read_at.update(dict.fromkeys(read, begun_ns))
        self._seen = {k: op for k, op in self._seen.items() if op.group not in read} | pending
        # For a group that this look could not read, the last look is valid for a while.
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
        """Marks groups that no longer exist, and forgets those gone for longest.

        A program may create groups all day. Nothing is in progress in a group that is gone.
        """
        lost = [
            group
            for group, known in self.known.items()
            if not known.gone and known.name not in names
        ]
        if not lost:
            return
        self._pending = {key: op for key, op in self._pending.items() if op.group not in lost}
        self._seen = {key: op for key, op in self._seen.items() if op.group not in lost}
        for group in lost:
            # Moved to the end: the dict is ordered by when groups disappeared.
            self.known[group] = structs.replace(self.known.pop(group), gone=True)
        gone = [group for group, known in self.known.items() if known.gone]
        self._forget(set(gone[:-MAX_GONE]))

    def _forget(self, groups: Collection[int]) -> None:
        for known in (self.known, self._fronts, self.progress, self._read_at):
            for group in known.keys() & groups:
                del known[group]
        self._ids = {key: group for key, group in self._ids.items() if group not in groups}

    def age(self, now_ns: int) -> None:
        """Adds the time of the last read to progress that is outdated."""
        for group, read_ns in self._read_at.items():
            shown = self.progress[group]
            late = now_ns - read_ns > LAG_NS and not self.known[group].gone
            if late and shown.as_of_ns != read_ns:
                self.progress[group] = structs.replace(shown, as_of_ns=read_ns)

    def forget_pending(self) -> None:
        """Forgets the ops in progress, because they may be over."""
        self._pending = {}

    def end(self) -> None:
        """Handles the end of the rank: its ops in progress stay as they were."""
        self._outputs.clear()

    def _id_of(self, group: GroupState, backend: Backend) -> int:
        key = group.name, group.ranks, backend.kind
        number = self._ids.get(key)
        if number is None:
            self._newest_id += 1
            number = self._ids[key] = self._newest_id
        known = self.known.get(number)
        if known is not None and known.gone:  # created again with the same name and members
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
            if front is None or number < front.number:  # created again with the same name
                front = self._fronts[group] = Front(number, messages, at_ns)
            front.advance(number, messages, at_ns)

    def _pending_of(
        self, group: int, backend: Backend, at_ns: int
    ) -> Iterator[tuple[_PendingKey, wire.Op]]:
        numbered = list(numbered_ops(backend))
        for work, number in numbered[:MAX_PENDING]:
            kind = KINDS.get(work.op, work.op)
            key = group, work.number, kind
            known = self._seen.get(key)
            if known is not None and number in (None, known.number):
                yield key, self._with_outputs(key, known, outputs_of(work, kind))
            elif number is not None:
                self._outputs[key] = outputs_of(work, kind)
                yield key, self._op(group, number, kind, at_ns, work.timeout_s)
            else:
                name = self.known[group].name
                self._untold.append(f"group {name}: {kind} in progress, number unknown")

    def _with_outputs(
        self, key: _PendingKey, op: wire.Op, outputs: tuple[wire.TensorSpec, ...] | None
    ) -> wire.Op:
        """Returns the op with its output tensors, once two looks have shown the same tensors.

        Memory freed in between may hold another tensor, and wrong shapes would accuse an innocent
        rank.
        """
        before, self._outputs[key] = self._outputs.get(key), outputs
        signature = op.signature
        if not outputs or outputs != before or signature is None or signature.outputs:
            return op
        return structs.replace(op, signature=structs.replace(signature, outputs=outputs))

    def _progress_of(
        self, group: int, backend: Backend, pending: Mapping[_PendingKey, wire.Op]
    ) -> wire.GroupProgress:
        """Returns the progress of a group; its last op is over unless in progress or unknown."""
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
        read_ns = self._read_at.get(group)
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
            dated=read_ns is not None and at_ns - read_ns <= STALE_NS,
        )


@dataclass(slots=True)
class Front:
    """The number of a group, and its longest standstill so far.

    `since_ns` is the look that first showed `number`; `changes` counts later numbers, and `ops` the
    ops issued since then.
    """

    number: int
    messages: int
    since_ns: int
    changes: int = 0
    ops: int = 0
    longest_ns: int = 0

    def advance(self, number: int, messages: int, at_ns: int) -> None:
        if (number, messages) == (self.number, self.messages):
            return
        if self.changes:  # nobody knows how long the first one stood still
            self.longest_ns = max(self.longest_ns, at_ns - self.since_ns)
        self.ops += number + messages - self.number - self.messages
        self.number, self.messages, self.since_ns = number, messages, at_ns
        self.changes += 1


def counted(c10d: C10dState) -> Iterator[tuple[GroupState, Backend]]:
    """Yields groups with their backends; if a group has several, only those in use."""
    for group in c10d.groups:
        readable = [one for one in group.backends if one.number is not None]
        used = [one for one in readable if one.number] or readable[:1]
        for backend in used:
            yield group, backend


def number_of(backend: Backend) -> int | None:
    """Returns the number of the last op, in a count that is the same on all members.

    gloo's own `number` includes sends and receives, which only two ranks make.
    """
    return backend.number if backend.collectives is None else backend.collectives


def is_exact(backend: Backend) -> bool:
    """Returns whether `number_of` can be compared between ranks."""
    return backend.collectives is not None or not backend.counts_p2p


def messages_of(backend: Backend) -> int:
    """Returns how many sends and receives were issued, if they are counted separately."""
    if backend.collectives is not None and backend.number is not None:
        return max(0, backend.number - backend.collectives)
    return backend.p2p_number or 0


def numbered_ops(backend: Backend) -> Iterator[tuple[Work, int | None]]:
    """Yields ops in progress, oldest first, with their numbers in the count of `number_of`.

    If c10d's count includes messages, the number of an op is known only if all later ops are still
    in progress, which shows the messages among them.
    """
    works = sorted(backend.pending, key=lambda work: work.number)
    collectives_after = 0
    numbered: list[tuple[Work, int | None]] = []
    for after, work in enumerate(reversed(works)):
        numbered.append((work, _number_in(backend, work, after, collectives_after)))
        collectives_after += work.op not in P2P
    return (pair for pair in reversed(numbered) if not pair[0].completed)


def _number_in(backend: Backend, work: Work, after: int, collectives_after: int) -> int | None:
    if backend.collectives is None or backend.number is None:
        return work.number
    if work.op in P2P or backend.number == backend.collectives:
        return work.number  # nobody compares the number of a message
    all_known = backend.number - work.number == after
    return backend.collectives - collectives_after if all_known else None


def last_op_of(group: int, front: Front, backend: Backend) -> wire.Op:
    """Returns the newest op of a group if no list of ops in progress has it.

    The op is over if such a list is complete; otherwise that is unknown.
    """
    lists_all = backend.kind == GLOO and not backend.reason
    open_too = any(number == front.number for _, number in numbered_ops(backend))
    return wire.Op(
        sequence=0,
        group=group,
        number=front.number,
        signature=None,
        site=None,
        issued_ns=front.since_ns,
        done_ns=front.since_ns if lists_all and not open_too else 0,
        tracked=lists_all,
        dated=front.changes > 0,
    )


def outputs_of(work: Work, kind: str) -> tuple[wire.TensorSpec, ...] | None:
    """Returns an op's output tensors if all members must have the same ones; None if unknown."""
    found = work.outputs
    if kind not in _SIZED or not found or len(found) > _MOST_OUTPUTS:
        return None
    return tuple(
        wire.TensorSpec(one.dtype, one.shape, len(list(same)), one.device)
        for one, same in groupby(found)
    )


def label_of(group: GroupState) -> str:
    unnamed = group.description in ("", "undefined")
    return group.name if unnamed else group.description


def wire_group(
    number: int, group: GroupState, backend: str, exact: bool, timeout_s: float
) -> wire.Group:
    return wire.Group(
        id=number,
        name=group.name,
        description=group.description,
        backend=backend,
        ranks=fold_short(group.ranks or ()),
        exact=exact,
        timeout_s=timeout_s,
    )


def reasons_of(look: Look) -> Iterator[str]:
    """Yields in words what could not be read."""
    if look.reason:
        yield look.reason
    if look.c10d is None:
        return
    if look.c10d.reason:
        yield look.c10d.reason
    for group in look.c10d.groups:
        for reason in (group.reason, *(backend.reason for backend in group.backends)):
            if reason:
                yield f"group {group.name}: {reason}"


def place_of(identity: str) -> tuple[str, int, str]:
    """Returns address, port and run id from a world's identity, if it has them."""
    address, port, run_id = "", 0, ""
    words = iter(identity.split())
    for word in words:
        if word == "run":
            run_id = next(words, "")  # it may look like an address
        elif (found := _PORT.fullmatch(word)) is not None and not port:
            address, port = found[1], int(found[2])
    return address, port, run_id
