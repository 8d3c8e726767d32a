"""Ops that only a stack shows: messages, and calls in which ranks meet.

c10d's state lists collectives in progress. A `recv` or `init_process_group` shows only in the
stack, in two looks. It becomes a pending op, as a recorder would have recorded it, so that later
stages need not know the difference.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.evidence.c10d_call import DEVICE_WAIT, C10dCall
from frtop_tui.diagnosis.evidence.rank_activity import (
    every_op_is_known,
    known_until_ns,
    last_activity_ns,
    working_location,
)
from frtop_tui.diagnosis.evidence.rpc_call import future_of
from frtop_tui.diagnosis.evidence.stack_location import function_name
from frtop_tui.diagnosis.evidence.stack_state import stack_state
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.thresholds import PATIENCE_WITHOUT_HISTORY_NS
from frtop_tui.job.model import ObservedFrame, ObservedRank
from frtop_tui.job.naming import group_label
from frtop_tui.job.unprepared import last_issue_is_least

_NEWEST: Final = 1 << 40
"""The sequence of an op from a stack: the rank is in it, so it issued it last."""
_DIGITS: Final = 10
_MESSAGES: Final = frozenset({"send", "recv"})
_GLOO: Final = "gloo"
_COUNTED: Final = "monitored_barrier"
_SINGLE_OPS: Final = frozenset({
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single",
    "barrier", "broadcast", "gather", "monitored_barrier", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter",
})  # fmt: skip
"""Calls that issue one op of the same name: others cannot be compared with ops in progress."""
_REDUCES: Final = "all_reduce"
_SCATTERS: Final = "reduce_scatter_tensor"
_LISTED_AS: Final = {"all_to_all_single": "all_to_all", _SCATTERS: _REDUCES}
"""gloo's names of ops that differ from their calls."""
EITHER: Final = f"{_REDUCES} or {_SCATTERS}"
"""The meaning of gloo's name for both."""


class OpsByStack:
    """Adds such ops to frames; an unchanged rank stays the same object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ObservedRank, ObservedRank]] = {}

    def added_to(self, frame: ObservedFrame) -> ObservedFrame:
        """`frame` with these ops."""
        if every_op_is_known(frame.ranks):
            return frame
        known: dict[int, tuple[ObservedRank, ObservedRank]] = {}
        for number, view in frame.ranks.items():
            before = self._known.get(number)
            same = before is not None and before[0] is view
            known[number] = before if before is not None and same else (view, with_op(view))
        self._known = known
        return replace(frame, ranks={number: after for number, (_, after) in known.items()})


def with_op(view: ObservedRank) -> ObservedRank:
    """The rank with the op that its working thread is in, if only the stack shows it."""
    readable = view.evidence.has_numbers and not view.evidence.has_every_op
    added = any(map(is_by_stack, view.pending))  # as captures keep it
    if not readable or added or working_location(view) is None:
        return view
    state = stack_state(view)
    if state is None or state.activity != "inside" or state.progress == "active":
        return view
    call = state.call
    assert call is not None
    pending = view.pending
    if call.role == "collective":
        pending = _entered(pending, call.kind, _root(view, call.kind))
        if pending is view.pending and state.progress == "none":
            return _with_unlisted(view, call)
    elif call.role == "rendezvous":
        pending = (*pending, _op(view, call, 0))
    elif call.kind in _MESSAGES and call.peer is not None and (group := _group_id(view, call)):
        pending = (*pending, _op(view, call, group))
    elif not pending and view.groups and _is_known(view, call) and not _is_of_another(view, call):
        # It waits for a message or a device: the blame does not end here.
        pending = (_unknown(view, call),)
    return view if pending is view.pending else replace(view, pending=pending)


def is_by_stack(op: wire.Op) -> bool:
    """Whether the op is from a stack: the rank is in it."""
    return op.sequence == _NEWEST


def is_either(op: wire.Op, group: wire.Group | None) -> bool:
    """Whether only gloo's name of an op is known, which two kinds share.

    c10d's state has no line and no thread; every other source has one of them.
    """
    by_c10d = op.site is None and not op.thread and not is_by_stack(op)
    named = op.signature is not None and op.signature.kind == _REDUCES
    return by_c10d and named and group is not None and _GLOO in group.backend


def may_be_same(one: wire.Op, other: wire.Op, group: wire.Group) -> bool:
    """Whether two ops differ only in gloo's name for one of them."""
    kinds = {op.signature.kind for op in (one, other) if op.signature is not None}
    if kinds != {_REDUCES, _SCATTERS}:
        return False
    return any(is_either(op, group) or is_by_stack(op) for op in (one, other))


def _entered(pending: tuple[wire.Op, ...], kind: str, root: int | None) -> tuple[wire.Op, ...]:
    """The rank is in the newest pending op of that kind."""
    for at in reversed(range(len(pending))):
        signature = pending[at].signature
        if signature is not None and signature.kind in (kind, _LISTED_AS.get(kind)):
            named = kind if kind == _SCATTERS else signature.kind
            called = replace(signature, kind=named, root=root)
            entered = replace(pending[at], sync=True, sequence=_NEWEST, signature=called)
            return (*pending[:at], *pending[at + 1 :], entered)
    return pending


def _with_unlisted(view: ObservedRank, call: C10dCall) -> ObservedRank:
    """The rank with a collective that gloo does not list as in progress.

    With TORCH_DISTRIBUTED_DEBUG=DETAIL, an op is checked with all members before it is issued and
    counted. A monitored barrier is counted, and waits in the calling thread.
    """
    group = _group_id(view, call)
    front = view.group_progress.get(group)
    if front is None or view.groups[group].backend != _GLOO:
        return view
    if any(op.group == group for op in view.pending):
        return view  # one of those, in a call that consists of several
    if call.kind not in _SINGLE_OPS or _is_older_than_call(view, group):
        return replace(view, pending=(*view.pending, _unknown(view, call)))
    number = front.number + (call.kind != _COUNTED)
    signature = wire.Signature(_LISTED_AS.get(call.kind, call.kind), peer=call.peer)
    op = replace(_op(view, call, group), number=number, signature=signature)
    moved = replace(front, number=number, last=op)
    return replace(
        view,
        pending=(*view.pending, op),
        group_progress={**view.group_progress, group: moved},
    )


def _is_older_than_call(view: ObservedRank, group: int) -> bool:
    """Whether the group's number is older than the stacks: many ops may have been issued since."""
    first = view.prior_snapshot or view.snapshot
    return first is not None and known_until_ns(view, group) < first.at_ns + view.clock_ns


def _group_id(view: ObservedRank, call: C10dCall) -> int:
    """The rank's own id of the group; 0 if the stack does not show which one it is."""
    named = [
        number
        for number, group in view.groups.items()
        if not group.gone
        and call.group in ("", group.name, group_label(group.name, group.description))
    ]
    return named[0] if len(named) == 1 else 0


def _variables(view: ObservedRank, function: str) -> dict[str, str]:
    """The local variables of torch's own function, as far as the stack has them."""
    working = working_stack(view)
    frames = working.frames if working is not None else ()
    found = (dict(frame.variables) for frame in frames if function_name(frame) == function)
    return next(found, {})


def _root(view: ObservedRank, kind: str) -> int | None:
    """The global rank that the call names as its source or target."""
    variables = _variables(view, kind)
    named = variables.get("src", variables.get("dst", ""))
    return int(named) if named.isdecimal() and len(named) < _DIGITS else None


def _callers(view: ObservedRank, call: C10dCall) -> str | None:
    """The ranks that have to make the call, folded; None if the stack does not show them."""
    local = _variables(view, call.kind).get("use_local_synchronization")
    if call.role != "rendezvous" or local != "False":
        return None
    return fold(range(view.identity.job.world_size)) or None


def _is_of_another(view: ObservedRank, call: C10dCall) -> bool:
    """Whether the call may not be an op, or is one that another stage finds."""
    stack = working_stack(view)
    is_remote = stack is not None and future_of(view, stack) is not None
    return is_remote or _is_for_last(view, call)


def _is_for_last(view: ObservedRank, call: C10dCall) -> bool:
    """Whether it waits for a device that may still be at the rank's last op (`blocked_op`)."""
    return call.kind == DEVICE_WAIT and any(not op.tracked for op in view.last_ops)


def _is_known(view: ObservedRank, call: C10dCall) -> bool:
    """Whether c10d shows what it waits for; else it may be an unobserved transport."""
    return call.role != "implicit" or view.evidence.has_transports


def _unknown(view: ObservedRank, call: C10dCall) -> wire.Op:
    """An unknown op that the rank waits for: a message without a peer."""
    newest = max(view.group_progress.values(), key=lambda one: one.issued_ns, default=None)
    group = newest.group if newest is not None else min(view.groups)
    return replace(_op(view, call, group), signature=None, p2p=True)


def _op(view: ObservedRank, call: C10dCall, group: int) -> wire.Op:
    """The op, begun when the rank last did anything, else when it was first seen."""
    assert view.snapshot is not None
    first = view.prior_snapshot or view.snapshot
    begun_ns = last_activity_ns(view)
    is_young = first.at_ns - view.identity.started_ns < PATIENCE_WITHOUT_HISTORY_NS
    return wire.Op(
        sequence=_NEWEST,
        group=group,
        number=0,
        signature=wire.Signature(call.kind, peer=call.peer, members=_callers(view, call)),
        site=wire.Site(call.frame.file, call.frame.line, call.frame.function),
        issued_ns=begun_ns or first.at_ns,
        sync=True,
        p2p=call.role == "p2p",
        pseudo=call.role == "rendezvous",
        # A process that has just started may be early in its first call.
        dated=(bool(begun_ns) and not last_issue_is_least(view)) or is_young,
    )
