"""The c10d state of a rank, in the terms of the wire. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_probe.unprepared.model import Backend, C10dState, GroupState, Work
from frtop_probe.unprepared.worker import Look

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
"""Names as users write them, where c10d's `OpType` has another one."""
GLOO: Final = "gloo"
"""Backends whose state lists all collectives in progress: all others are over."""
P2P: Final = frozenset({"send", "recv", "recvanysource"})
_SIZED: Final = frozenset({
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "scatter",
})  # fmt: skip
"""Kinds of gloo whose outputs have to be alike on all members: in-place tensors, and lists with
one for each member. `gather` has outputs at its root only, and `all_to_all` may differ."""
_MOST_OUTPUTS: Final = 15
"""The reader describes no more than one beyond them: longer lists are not whole."""
_PORT: Final = re.compile(r"(.+):(\d{1,5})")


@dataclass(slots=True)
class Front:
    """How far a group is, and how long its number stood still at most.

    `since_ns` is the look that showed `number` first; `changes` counts later ones, and `ops` what
    was issued meanwhile.
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
        if self.changes:  # nobody knows for how long the first one had stood
            self.longest_ns = max(self.longest_ns, at_ns - self.since_ns)
        self.ops += number + messages - self.number - self.messages
        self.number, self.messages, self.since_ns = number, messages, at_ns
        self.changes += 1


def counted(c10d: C10dState) -> Iterator[tuple[GroupState, Backend]]:
    """Groups with their backends; of several backends those that were used."""
    for group in c10d.groups:
        readable = [one for one in group.backends if one.number is not None]
        used = [one for one in readable if one.number] or readable[:1]
        for backend in used:
            yield group, backend


def number_of(backend: Backend) -> int | None:
    """The number of the last op that all members count alike.

    gloo's `number` counts sends and receives, which only two ranks make.
    """
    return backend.number if backend.collectives is None else backend.collectives


def is_exact(backend: Backend) -> bool:
    """Whether `number_of` can be compared between ranks."""
    return backend.collectives is not None or not backend.counts_p2p


def messages_of(backend: Backend) -> int:
    """Sends and receives issued, as far as they can be told from collectives."""
    if backend.collectives is not None and backend.number is not None:
        return max(0, backend.number - backend.collectives)
    return backend.p2p_number or 0


def numbered_ops(backend: Backend) -> Iterator[tuple[Work, int | None]]:
    """Ops in progress, oldest first, with their numbers in the count of `number_of`.

    Where messages are counted, too, the number of an op before the last one is known if all that
    were issued since are still in progress, so that the messages among them can be told.
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
        return work.number  # of a message nobody compares it
    all_known = backend.number - work.number == after
    return backend.collectives - collectives_after if all_known else None


def last_op_of(group: int, front: Front, backend: Backend) -> wire.Op:
    """The newest op of a group where it is in no list of those in progress.

    It is over if such a list has all of them; otherwise nobody can tell.
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
    """Output tensors of an op, where all members must have the same; None if not known."""
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
        ranks=fold(group.ranks or ()),
        exact=exact,
        timeout_s=timeout_s,
    )


def reasons_of(look: Look) -> Iterator[str]:
    """What could not be read, for people."""
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
    """Address, port and run id in the words of a world's identity, as far as it has them."""
    address, port, run_id = "", 0, ""
    words = iter(identity.split())
    for word in words:
        if word == "run":
            run_id = next(words, "")  # it may look like an address
        elif (found := _PORT.fullmatch(word)) is not None and not port:
            address, port = found[1], int(found[2])
    return address, port, run_id
