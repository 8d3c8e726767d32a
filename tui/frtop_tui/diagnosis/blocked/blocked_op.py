"""Who is blocked in what: the only ranks from which an edge of blame leaves.

Pending alone is no edge. A pipeline stage with a pre-posted `irecv` is not waiting, and
asynchronous ops may be far ahead of whoever computes. A rank is blocked when one of its
threads sits in the wait.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.evidence import stack_location as places
from frtop_tui.diagnosis.evidence.c10d_call import Call
from frtop_tui.diagnosis.evidence.stack_location import StackLocation
from frtop_tui.diagnosis.evidence.stack_state import stack_state
from frtop_tui.job.model import Rank

AT_LEAST_NS: Final = 3_000_000_000
WITHOUT_HISTORY_NS: Final = 30_000_000_000
"""Start-up, the first use of a group and compilation take their time once."""
HEARD_NS: Final = 1_000_000_000
"""What a rank has done is heard some ticks later."""
HISTORY: Final = 3
LONGEST_S: Final = 1e9
"""Of a timeout; what is longer is none."""
_NOT_WAITING: Final = frozenset({"dead", "done", "stopped", "unheard"})
"""What an unheard rank waited in when it was last heard may be over long since."""


class Wait(Struct, frozen=True):
    """One rank blocked in one op, since when (operator's clock), and how sure that is.

    `side` means that another thread than the main one waits: the rank itself goes on.
    `behind` means that the main thread waits for some thread, most likely that one.
    `undated` means that nothing tells for how long: out of a dump, say, of unknown age.
    `call` is what the rank's stack is in, where its ops have no numbers.
    """

    rank: int
    op: wire.Op
    since_ns: int
    sure: bool = True
    side: bool = False
    behind: bool = False
    undated: bool = False
    group: wire.Group | None = None  # as the rank knows it
    call: Call | None = None

    @property
    def peer(self) -> int | None:
        """The other side of a send or receive, where that is known."""
        return self.op.signature.peer if self.op.signature is not None else None

    def has_lasted(self, least_ns: int, now_ns: int) -> bool:
        """Whether it is at least so old; what is undated may be."""
        return self.undated or now_ns - self.since_ns >= least_ns


def has_history(op: wire.Op) -> bool:
    """Whether it is known how long a wait at this op's call site usually takes."""
    return not op.pseudo and op.usual_count >= HISTORY


def patience_ns(op: wire.Op, group: wire.Group | None) -> int:
    """How long a wait for this op may last before it is out of the ordinary."""
    if not has_history(op):
        return without_history_ns(op, group)
    return _in_time(max(AT_LEAST_NS, 5 * op.usual_ns), op, group)


def without_history_ns(op: wire.Op, group: wire.Group | None) -> int:
    """The same where nothing is known of how long it usually takes."""
    return _in_time(WITHOUT_HISTORY_NS, op, group)


def _in_time(patience: int, op: wire.Op, group: wire.Group | None) -> int:
    """Before torch itself gives up, in any case."""
    timeout = timeout_ns(op, group)
    return min(patience, timeout // 3) if timeout else patience


def timeout_ns(op: wire.Op, group: wire.Group | None) -> int:
    """After how long torch itself gives up, 0 if not known."""
    if op.timeout_ms:
        return op.timeout_ms * 1_000_000
    # Out of a rank's ring or a file, where also NaN may stand.
    known = group is not None and 0 < group.timeout_s < LONGEST_S
    return int(group.timeout_s * 1e9) if group is not None and known else 0


def is_fetching(view: Rank) -> bool:
    """Inside a DataLoader fetch now."""
    fetch = view.status.fetch if view.status is not None else None
    return fetch is not None and fetch.begin_ns > fetch.end_ns


def last_activity_ns(view: Rank) -> int:
    """Host time of the last thing the rank is known to have done: op, step or fetch."""
    newest = max((front.issued_ns for front in view.group_progress.values()), default=0)
    if view.pending:
        newest = max(newest, view.pending[-1].issued_ns)
    present = view.status
    if present is not None:
        newest = max(newest, present.step_ns)
        if present.fetch is not None:
            newest = max(newest, present.fetch.begin_ns, present.fetch.end_ns)
    return newest


def is_ahead(view: Rank, now_ns: int) -> bool:
    """Whether a look has just told of an op that the agent has not told of yet."""
    look = view.snapshot
    if look is None or now_ns - view.clock_ns - look.at_ns > HEARD_NS:
        return False
    newest = max((front.issued_ns for front in view.group_progress.values()), default=0)
    least = max(newest, look.at_ns - HEARD_NS)  # what is older has been told, or never will be
    return any(op.issued_ns > least and op.group in view.group_progress for op in look.ops)


def main_place(view: Rank) -> StackLocation | None:
    """Where the main thread was in the last dump, if the rank has not moved since."""
    stack = view.main_stack
    if stack is None or last_activity_ns(view) > view.stacks_taken_ns:
        return None
    return places.classify(stack, view.process)


def wait_of(view: Rank) -> Wait | None:
    """The op that this rank's main thread, or else another one, is blocked in."""
    if view.state in _NOT_WAITING:
        return None
    if not (view.evidence.has_numbers and view.evidence.has_process):
        return _dumped_wait(view) if view.evidence.has_numbers else _wait_by_stack(view)
    if not any(op.tracked for op in view.pending):
        return _untracked_wait(view)
    sitting = _sitting_in(view)
    if sitting is not None and not sitting.side:
        return sitting
    place = main_place(view)
    if sitting is not None and place is not None and place.kind == "lock" and place.sure:
        # The main thread waits for another one, a checkpoint's say, that sits in an op.
        return replace(sitting, side=False, sure=False, behind=True)
    return _asynchronous_wait(view, place) or sitting


def _wait_by_stack(view: Rank) -> Wait | None:
    """The wait of a rank that is inside a call; None if two stacks show that it moves."""
    state = stack_state(view)
    if state is None or state.doing != "inside" or state.progress == "active":
        return None
    call = state.call
    assert call is not None
    op = wire.Op(
        sequence=0,
        group=0,
        number=0,
        signature=wire.Signature(call.kind, peer=call.peer),
        site=wire.Site(call.own.file, call.own.line, call.own.function),
        issued_ns=0,
        sync=True,
        p2p=call.role == "p2p",
    )
    sure = call.role != "implicit"
    return Wait(view.rank, op, view.state_since_ns, sure, undated=True, call=call)


def _dumped_wait(view: Rank) -> Wait | None:
    """The wait that a dump tells of; how long it lasts, only what came after it can tell."""
    op = view.blocked_on
    if op is None:
        return None
    patience = patience_ns(op, view.groups.get(op.group))
    aged = bool(op.issued_ns) and last_activity_ns(view) - op.issued_ns > patience
    since = op.issued_ns + view.clock_ns
    return Wait(view.rank, op, since, undated=not aged, group=view.groups.get(op.group))


def _asynchronous_wait(view: Rank, place: StackLocation | None) -> Wait | None:
    """The main thread waits for an op that it has issued without waiting at once."""
    candidate = _candidate(view)
    if candidate is None or is_fetching(view):
        return None
    since = max(last_activity_ns(view), candidate.issued_ns) + view.clock_ns
    group = view.groups.get(candidate.group)
    if place is not None:
        asleep = view.main_stack is not None and not view.main_stack.active
        if place.kind in places.WAITS and (asleep or place.kind != "backward"):
            return Wait(view.rank, candidate, since, group=group)
        if place.sure or place.kind != "lock":
            return None
    # No stack that says where: asleep in a futex, as in gloo's wait, and nothing done since.
    if places.is_asleep_on_lock(view.process):
        return Wait(view.rank, candidate, since, sure=False, group=group)
    return None


def _sitting_in(view: Rank) -> Wait | None:
    """A synchronous op whose thread has not issued anything after it."""
    main = view.identity.main_ident
    found: Wait | None = None
    for op in view.pending:
        if not (op.sync or op.pseudo) or not op.tracked:
            continue
        if _has_moved_on(view, op):
            continue
        side = bool(main and op.thread and op.thread != main)
        group, since = view.groups.get(op.group), op.issued_ns + view.clock_ns
        wait = Wait(view.rank, op, since, side=side, group=group)
        # Inside a pseudo-op (`new_group`) an op of its own may wait: the inner one counts.
        if found is None or (found.side and not side) or (found.side == side and found.op.pseudo):
            found = wait
    return found


def _has_moved_on(view: Rank, op: wire.Op) -> bool:
    """Whether the op's thread has issued a later one: then it cannot sit in this one."""
    if op.pseudo:
        return False  # what it issues inside is part of it
    thread, sequence = op.thread, op.sequence
    for other in view.pending:
        if other.sequence > sequence and other.thread == thread and not other.pseudo:
            return True
    for front in view.group_progress.values():
        last = front.last
        if last is not None and last.sequence > sequence and last.thread == thread:
            return True
    return False


def _candidate(view: Rank) -> wire.Op | None:
    """The op that a waiting main thread most likely waits for.

    Collectives complete in order, so the oldest one. Sends and receives count only when
    there is nothing else: the newest, as one left for ever is the usual leftover.
    """
    main = view.identity.main_ident
    mine = [
        op
        for op in view.pending
        if op.tracked and not op.pseudo and not (op.sync and main and op.thread != main)
    ]
    collectives = [op for op in mine if not op.p2p]
    if collectives:
        return collectives[0]
    return mine[-1] if mine else None


def _untracked_wait(view: Rank) -> Wait | None:
    """Device ops: completion is unknown, so the last one counts if the stack waits."""
    known = [*view.pending, *(f.last for f in view.group_progress.values() if f.last is not None)]
    lasts = [op for op in known if not op.tracked and not op.p2p]
    if not lasts:
        return None
    place = main_place(view)
    if place is None or place.kind not in places.WAITS or is_fetching(view):
        return None
    last = max(lasts, key=lambda op: op.sequence)
    since = last_activity_ns(view) + view.clock_ns
    sure, group = place.kind != "backward", view.groups.get(last.group)
    return Wait(view.rank, last, since, sure=sure, group=group)
