"""Which op a rank is blocked in: edges of the wait-for graph leave only such ranks.

A pending op alone does not block a rank: a pipeline stage posts its `irecv` early, and asynchronous
ops may be far ahead of the computation. A rank is blocked when one of its threads is in the wait.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.wait import Wait, patience_ns
from frtop_tui.diagnosis.evidence.c10d_call import TEARDOWN, call_of
from frtop_tui.diagnosis.evidence.rank_activity import (
    current_fetch,
    last_activity_ns,
    working_location,
)
from frtop_tui.diagnosis.evidence.rpc_call import future_of, rpc_call_of
from frtop_tui.diagnosis.evidence.stack_location import OP_WAITS, StackLocation, is_asleep_on_lock
from frtop_tui.diagnosis.evidence.stack_state import stack_state
from frtop_tui.diagnosis.evidence.working_thread import (
    runs_training,
    thread_chain,
    working_process,
    working_stack,
)
from frtop_tui.diagnosis.thresholds import MIN_PATIENCE_NS
from frtop_tui.job.model import Rank
from frtop_tui.job.unprepared import last_issue_is_least

_AT_A_FULL_QUEUE: Final = OP_WAITS | {"computing", "unknown"}
"""Places where a host with a full device queue may be. It stops at any line, and its stack does not
show why."""
_NEVER_BLOCKED: Final = frozenset({"dead", "done", "stopped", "unreachable"})
"""States in which a pending op does not block the rank, or may be over by now."""


def wait_of(view: Rank) -> Wait | None:
    """The op that the rank's working thread, else another thread, is blocked in."""
    if view.state in _NEVER_BLOCKED:
        return None
    return _remote_wait(view) or _wait_in_op(view)


def _wait_in_op(view: Rank) -> Wait | None:
    if not (view.evidence.has_numbers and view.evidence.has_process):
        return _dumped_wait(view) if view.evidence.has_numbers else _wait_by_stack(view)
    if not any(op.tracked or op.wait_ns > 0 for op in view.pending):
        return _untracked_wait(view)
    wait = _synchronous_wait(view)
    if wait is not None and not wait.background:
        return wait
    location = working_location(view)
    if wait is not None and location is not None and location.kind == "lock" and location.sure:
        # The working thread waits for another thread, such as a checkpoint's, that is in the op.
        chain = thread_chain(view)
        end = chain.end if chain is not None else None
        if end is None or end.ident == wait.op.thread:
            return replace(wait, background=False, sure=end is not None, indirect=True)
    return (
        _seen_wait(view, location)
        or _asynchronous_wait(view, location)
        or wait
        or _device_wait(view, location)
    )


def _wait_by_stack(view: Rank) -> Wait | None:
    """The wait of a rank in a call; None if two stacks show that it moves."""
    state = stack_state(view)
    if state is None or state.activity != "inside" or state.progress == "active":
        return None
    call = state.call
    assert call is not None
    op = wire.Op(
        sequence=0,
        group=0,
        number=0,
        signature=wire.Signature(call.kind, peer=call.peer),
        site=wire.Site(call.frame.file, call.frame.line, call.frame.function),
        issued_ns=0,
        sync=True,
        p2p=call.role == "p2p",
    )
    sure = call.role != "implicit"
    return Wait(view.rank, op, view.state_since_ns, sure, undated=True, call=call)


def _remote_wait(view: Rank) -> Wait | None:
    """The wait for the answer to a remote call; without other ops, its age is a lower bound."""
    location, stack = working_location(view), working_stack(view)
    by_stack_alone = not (view.evidence.has_numbers and view.evidence.has_process)
    if location is None or stack is None or by_stack_alone or not view.groups:
        return None
    if location.kind == "collective":
        call = future_of(view, stack)
    else:
        call = rpc_call_of(stack) if location.kind == "rpc" else None
    if call is None or view.snapshot is None:
        return None
    begun_ns = last_activity_ns(view) or (view.prior_snapshot or view.snapshot).at_ns
    op = wire.Op(
        sequence=0,
        group=0,
        number=0,
        signature=wire.Signature(call.kind),
        site=wire.Site(call.frame.file, call.frame.line, call.frame.function),
        issued_ns=begun_ns,
        sync=True,
        pseudo=True,
        dated=not last_issue_is_least(view),
    )
    return Wait(view.rank, op, begun_ns + view.clock_ns, rpc=call)


def _dumped_wait(view: Rank) -> Wait | None:
    """The wait in a dump; it is known to be long only if something was issued after it."""
    op = view.blocked_on
    if op is None:
        return None
    group = view.groups.get(op.group)
    dated = bool(op.issued_ns) and last_activity_ns(view) - op.issued_ns > patience_ns(op, group)
    since = op.issued_ns + view.clock_ns
    return Wait(view.rank, op, since, undated=not dated, group=group)


def _synchronous_wait(view: Rank) -> Wait | None:
    """A pending synchronous op whose thread has issued nothing after it."""
    found: Wait | None = None
    for op in view.pending:
        in_call = op.on_device and not op.enqueued
        if not (op.sync or op.pseudo or in_call) or _leaves(op) or _has_moved_on(view, op):
            continue
        if op.wait_ns <= 0 and (op.enqueued or not op.tracked):
            continue  # its device is in it; the host went on
        background = not runs_training(view, op.thread)
        group, since = view.groups.get(op.group), op.issued_ns + view.clock_ns
        wait = Wait(view.rank, op, since, background=background, group=group)
        # A call such as `new_group` issues ops of its own: the inner one counts.
        inner = found is not None and found.background == background and found.op.pseudo
        if found is None or inner or (found.background and not background):
            found = wait
    return found


def _leaves(op: wire.Op) -> bool:
    return op.pseudo and op.signature is not None and op.signature.kind in TEARDOWN


def _has_moved_on(view: Rank, op: wire.Op) -> bool:
    """Whether the op's thread has issued a later op, and so is not in this one."""
    if op.pseudo:
        return False  # the ops that it issues are part of it
    issued = chain((other for other in view.pending if not other.pseudo), view.last_ops)
    return any(other.sequence > op.sequence and other.thread == op.thread for other in issued)


def _asynchronous_wait(view: Rank, location: StackLocation | None) -> Wait | None:
    """The working thread's wait for an op that was issued earlier."""
    op = _awaited_op(view)
    if op is None or current_fetch(view):
        return None
    since = max(last_activity_ns(view), op.issued_ns) + view.clock_ns
    group = view.groups.get(op.group)
    if location is not None:
        if location.kind == "device" and not view.evidence.has_transports:
            return None  # it may wait for an unobserved transport
        working = working_stack(view)
        asleep = working is not None and not working.active
        indirect = location.kind == "lock" and _other_is_inside(view)
        if indirect or (location.kind in OP_WAITS and (asleep or location.kind != "backward")):
            return Wait(view.rank, op, since, group=group, indirect=indirect)
        if location.sure or location.kind != "lock":
            return None
    # Without a stack: asleep in a futex, as in gloo's wait, and idle since.
    if is_asleep_on_lock(working_process(view)):
        return Wait(view.rank, op, since, sure=False, group=group)
    return None


def _other_is_inside(view: Rank) -> bool:
    """Whether the thread that the working one waits for, such as a checkpoint's, is in a call."""
    chain = thread_chain(view)
    call = call_of(chain.end) if chain is not None and chain.end is not None else None
    return call is not None and call.role != "implicit"


def _device_wait(view: Rank, location: StackLocation | None) -> Wait | None:
    """The op that its device is in, if nothing shows that the host waits for it, too."""
    op = next((op for op in view.pending if op.enqueued and op.tracked and not op.p2p), None)
    if op is None:
        return None
    progress = view.group_progress.get(op.group)
    began = max(op.issued_ns, progress.advanced_ns if progress is not None else 0)
    # It has issued nothing since, so it may wait for its device.
    held = last_activity_ns(view) < began + MIN_PATIENCE_NS and current_fetch(view) is None
    held &= location is None or location.kind in _AT_A_FULL_QUEUE
    return Wait(
        view.rank, op, began + view.clock_ns, sure=False, background=not held, by_device=True,
        group=view.groups.get(op.group),
    )  # fmt: skip


def _seen_wait(view: Rank, location: StackLocation | None) -> Wait | None:
    """The wait that the recorder saw begin, unless the stack is elsewhere."""
    waits = [op for op in view.pending if op.wait_ns > 0 and not op.sync]
    if not waits or (location is not None and location.sure and location.kind not in OP_WAITS):
        return None
    op = max(waits, key=lambda waited: waited.wait_ns)
    since = op.wait_ns + view.clock_ns
    return Wait(view.rank, op, since, group=view.groups.get(op.group))


def _awaited_op(view: Rank) -> wire.Op | None:
    """The op that a waiting thread most likely waits for.

    The oldest collective, since they complete in order; else the newest send or receive, as older
    ones are often posted and never awaited.
    """
    mine = [
        op
        for op in view.pending
        if op.tracked and not op.pseudo and not (op.sync and not runs_training(view, op.thread))
    ]
    collectives = [op for op in mine if not op.p2p]
    if collectives:
        return collectives[0]
    return mine[-1] if mine else None


def _untracked_wait(view: Rank) -> Wait | None:
    """The last op of a device, whose completion is unknown, if the stack shows a wait."""
    untracked = [op for op in (*view.pending, *view.last_ops) if not op.tracked and not op.p2p]
    if not untracked:
        return None
    location = working_location(view)
    if location is None or location.kind not in OP_WAITS or current_fetch(view):
        return None
    last = max(untracked, key=lambda op: op.sequence)
    since = last_activity_ns(view) + view.clock_ns
    sure, group = location.kind != "backward", view.groups.get(last.group)
    return Wait(view.rank, last, since, sure=sure, group=group)
