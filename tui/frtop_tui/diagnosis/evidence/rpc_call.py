"""Remote calls of torch's RPC: which rank waits, and which thread of the callee works.

A caller's stack has the name of its callee, not its rank. A callee that is leaving shows its own
name; otherwise a rank is the callee only if a handler runs there and nothing contradicts that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.c10d_call import call_of, path_of
from frtop_tui.diagnosis.evidence.stack_location import function_name, locate, serves_rpc
from frtop_tui.job.model import Rank
from frtop_tui.job.stack_frames import user_frame

_HANDLERS: Final = re.compile(r"torch/distributed/rpc/internal\.py$")
_SYNC: Final = "rpc_sync"
_TENSORPIPE: Final = "TP_"
_LINE: Final = re.compile(r"\b(to_here|rpc_async)\(")
_NUMBERED: Final = re.compile(r"(.*?)(\d{1,9})\Z")


class RpcCall(Struct, frozen=True):
    """A call that a thread waits for; if not `sure`, it may be an op instead.

    `to` is the callee's name or number on the stack, "" if not known.
    """

    kind: str
    to: str
    frame: wire.TraceFrame  # made the call
    sure: bool = True

    @property
    def text(self) -> str:
        """`rpc_sync to worker2`."""
        return f"{self.kind} to {self.to}" if self.to else self.kind


def rpc_call_of(stack: wire.ThreadStack) -> RpcCall | None:
    """The remote call that a thread waits for, if any."""
    frames = stack.frames
    if not frames or locate(stack).kind != "rpc":
        return None
    caller, leaf = user_frame(frames), frames[0]
    if function_name(leaf) == _SYNC:
        to = dict(leaf.variables).get("to", "")
        return RpcCall(_SYNC, "" if to.startswith("<") else to.strip("\"'"), caller)
    found = _LINE.search(leaf.source)
    return RpcCall(found[1] if found else "a remote call", "", caller)


def may_call(view: Rank) -> bool:
    """Whether RPC runs in the rank: TensorPipe's threads are there."""
    tasks = view.snapshot.threads if view.snapshot is not None else ()
    return any(task.name.startswith(_TENSORPIPE) for task in tasks)


def future_of(view: Rank, stack: wire.ThreadStack) -> RpcCall | None:
    """A wait at a line such as `future.wait()`, in a rank that runs RPC and has no op pending."""
    call = call_of(stack)
    if view.pending or call is None or call.role != "implicit" or not may_call(view):
        return None
    sure = view.evidence.has_every_op
    kind = "a remote call" if sure else "a remote call or an op"
    return RpcCall(kind, "", call.frame, sure)


def handler_of(view: Rank) -> wire.ThreadStack | None:
    """The thread that works on a remote call; the first of several at the same lines.

    One that waits for another of them, as for its lock, is behind that one.
    """
    handlers = [one for one in view.threads if is_handler(one)]
    idents = [(one.ident,) for one in handlers]
    found = [one for one in handlers if one.wait is None or one.wait.threads not in idents]
    alike = len({path_of(one.frames) for one in found}) == 1
    return found[0] if alike else None


def is_handler(stack: wire.ThreadStack) -> bool:
    """Whether a thread runs the program's function of a remote call."""
    # A judgement asks this of each rank many times, and hardly any frame has such a name.
    named = [one for one in stack.frames[1:] if one.function.endswith("_run_function")]
    return any(
        function_name(frame) == "_run_function" and _HANDLERS.search(frame.file) for frame in named
    )


def callee(call: RpcCall, caller: int, views: Mapping[int, Rank]) -> int | None:
    """The rank that works on a call; None if not known."""
    if not call.sure:
        return None
    named, number = _names(views), _NUMBERED.fullmatch(call.to)
    known = named if call.to and not call.to.isdecimal() else {}
    others = [
        view for rank, view in views.items()
        if rank != caller and known.get(rank, call.to) == call.to
    ]  # fmt: skip
    working = [view.rank for view in others if any(map(is_handler, view.threads))]
    if call.to in named.values():
        found = [rank for rank, name in named.items() if name == call.to]
    elif number is not None and number[1] and not all(map(_is_numbered, named, named.values())):
        found = []  # numbers in names are not rank numbers
    elif number is not None:
        found = [rank for rank in working if rank == int(number[2])]
    else:
        found = working
    return found[0] if len(found) == 1 and handler_of(views[found[0]]) is not None else None


def is_held_by_itself(view: Rank) -> bool:
    """Whether its handler waits for no other rank."""
    stack = handler_of(view)
    return stack is not None and call_of(stack) is None and rpc_call_of(stack) is None


def by_handler(view: Rank) -> Rank:
    """The rank as seen from its handler: the ops of its other threads do not count."""
    handler, look = handler_of(view), view.snapshot
    if handler is None or look is None:
        return view
    return replace(
        view,
        identity=replace(view.identity, main_ident=handler.ident),
        snapshot=replace(look, ops=()),
        pending=(),
        group_progress={},
        status=None,
        notes=(),
    )


def _names(views: Mapping[int, Rank]) -> dict[int, str]:
    """The names of ranks in `rpc.shutdown`, from torch's own frames."""
    found = {}
    for rank, view in views.items():
        main = view.main_stack
        if main is not None and serves_rpc(main.frames):
            shown = (dict(frame.variables).get("self_name", "") for frame in main.frames)
            if name := next(filter(None, shown), ""):
                found[rank] = name.strip("\"'")
    return found


def _is_numbered(rank: int, name: str) -> bool:
    number = _NUMBERED.fullmatch(name)
    return number is None or int(number[2]) == rank
