"""Which call of torch.distributed a thread is in, by its stack alone.

torch's own functions name it: `all_reduce` in `distributed_c10d.py` is the call, and the first
frame outside torch made it. A wait for a `Work` has no Python frame, so some waits are recognised
by their line only, and the kind of op stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.stack_location import (
    function_name,
    line_and_function,
    locate,
    waits_for_device,
)
from frtop_tui.job.stack_frames import is_user_code, user_frame

C10dRole = Literal[
    "collective",
    "p2p",
    "rendezvous",  # processes meet to make a group
    "implicit",  # a wait for an op whose kind the stack does not show
]
ProgramOrder = Literal["same", "later", "earlier", "unknown"]
StackStep = tuple[str, str, int]
"""File, function and line of a frame; line 0 is unknown."""
StackPath = tuple[StackStep, ...]
"""A stack's steps, outermost first."""
DEFAULT_GROUP: Final = "default_pg"
DEVICE_WAIT: Final = "a wait for a device"

_P2P: Final = frozenset({
    "send", "recv", "isend", "irecv", "send_object_list", "recv_object_list", "batch_isend_irecv",
})  # fmt: skip
_GROUP_MAKERS: Final = frozenset({
    "init_process_group", "new_group", "split_group", "shrink_group", "new_subgroups",
    "new_subgroups_by_enumeration",
})  # fmt: skip
TEARDOWN: Final = frozenset({"destroy_process_group", "abort_process_group"})
"""Calls that leave groups: no other rank has to arrive."""
_NO_CALLS: Final = re.compile(r"^(get_|is_|supports_|set_|register_|record_comm$|__|wrapper$)")
"""Public functions of torch.distributed that issue no op; all others count as ops."""
_PRIVATE_CALLS: Final = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "_coalescing_manager": "coalesced ops",
    "_store_based_barrier": "init_process_group",
    "_new_process_group_helper": "new_group",
    "_new_group_with_tag": "new_group",
}
_C10D: Final = re.compile(r"torch/distributed/distributed_c10d\.py$")
_FUNCTIONAL: Final = re.compile(r"torch/distributed/_functional_collectives(_impl)?\.py$")
_FUNCTIONAL_CALL: Final = re.compile(
    r"^(broadcast|all_reduce|all_gather|reduce_scatter|all_to_all|permute_tensor)"
)
_RENDEZVOUS: Final = re.compile(r"torch/distributed/(rendezvous\.py$|elastic/(rendezvous|utils)/)")
_LOGGER: Final = "torch/distributed/c10d_logger.py"
_IN_NATIVE_CODE: Final = (
    # Python functions that issue their collective in C++.
    ("torch/nn/parallel/distributed.py", "_distributed_broadcast_coalesced", "broadcast"),
    ("torch/distributed/utils.py", "_sync_params_and_buffers", "broadcast"),
    ("torch/distributed/utils.py", "_verify_param_shape_across_processes", "all_gather"),
)
_OF_TORCH: Final = re.compile(
    r"torch/distributed/(?!elastic/|launcher/|rpc/|debug/|checkpoint/(filesystem|_fsspec|stag|storage)"
    r"|run\.py|launch\.py)"
)
_COMPILED: Final = re.compile(r"/torchinductor_[^/]*/")
_WORK: Final = re.compile(r"^\[?<[\w.]*\bWork\b")
_INTEGER: Final = re.compile(r"-?\d{1,9}\Z")


@dataclass(frozen=True, slots=True)
class C10dCall:
    """The call of torch.distributed that a thread is in."""

    kind: str  # the function; "a wait for an op" or similar if `role` is "implicit"
    role: C10dRole
    frame: wire.TraceFrame  # made the call
    path: StackPath  # the whole stack
    depth: int  # how many steps of `path` lead to the call, including it
    group: str = ""  # "" if the stack does not show it
    peer: int | None = None  # the other rank of a send or receive, if known
    is_teardown: bool = False  # it destroys groups, and so waits for no rank

    @property
    def steps(self) -> StackPath:
        """The steps that lead to the call, without torch's own inside it.

        In a wait of unknown kind, torch's lines are all that identifies it.
        """
        if self.role == "implicit" and self.kind != DEVICE_WAIT:
            return self.path
        return self.path[: self.depth - 1]

    @property
    def text(self) -> str:
        """`all_reduce, called at train.py:40 (step)`."""
        line = line_and_function(self.frame)
        if self.role == "implicit":
            return f"{self.kind} at {line}"
        side = "from" if self.kind.startswith(("recv", "irecv")) else "to"
        peer = f" {side} rank {self.peer}" if self.peer is not None else ""
        of = f" of {self.group}" if self.group else ""
        return f"{self.kind}{peer}{of}, called at {line}"


def call_of(stack: wire.ThreadStack) -> C10dCall | None:
    """The call that a thread is in, None if it is in none."""
    frames = stack.frames
    for depth in reversed(range(len(frames))):
        if (found := _named(frames, depth)) is not None:
            return found
    if not frames:
        return None
    if waits_for_device(frames):  # asleep or spinning
        return _call(DEVICE_WAIT, "implicit", frames, 0)
    if stack.active or stack.owns_gil:
        return None
    kind = _unnamed(stack)
    return _call(kind, "implicit", frames, 0) if kind else None


def wait_in_c(frames: tuple[wire.TraceFrame, ...]) -> C10dCall:
    """The wait of a thread whose C frames show that it is in an op."""
    return _call("a wait for an op", "implicit", frames, 0)


def is_connecting(stack: wire.ThreadStack | None) -> bool:
    """Whether a thread is connecting to the store, which waits for all ranks."""
    return stack is not None and any(
        frame.file.endswith("torch/distributed/rendezvous.py")
        or frame.function == "_create_c10d_store"
        for frame in stack.frames
    )


def path_of(frames: Sequence[wire.TraceFrame]) -> StackPath:
    return tuple((frame.file, frame.function, frame.line) for frame in reversed(frames))


def paths_differ(one: Sequence[StackStep], other: Sequence[StackStep]) -> bool | None:
    """Whether two stacks are at different lines; None if a deciding line is unknown."""
    if not (one and other):
        return None
    unknown = False
    for mine, theirs in zip(one, other, strict=False):
        if mine[:2] != theirs[:2] or (mine[2] != theirs[2] and mine[2] and theirs[2]):
            return True
        unknown = unknown or not (mine[2] and theirs[2])
    if len(one) != len(other):
        return True
    return None if unknown else False


def program_order(one: Sequence[StackStep], other: Sequence[StackStep]) -> tuple[ProgramOrder, str]:
    """Whether `one` is later in the program than `other`, and the lines that show it.

    A hint, not proof: a loop may lead back.
    """
    for mine, theirs in zip(one, other, strict=False):
        if mine == theirs and mine[2]:
            continue
        frame, other_frame = (wire.TraceFrame(s[1], s[0], s[2]) for s in (mine, theirs))
        known = mine[2] and theirs[2]
        if mine[:2] != theirs[:2] or not known or not is_user_code(frame):
            return "unknown", ""
        lines = f"{line_and_function(frame)} against {line_and_function(other_frame)}"
        return ("later" if mine[2] > theirs[2] else "earlier"), lines
    return ("same" if len(one) == len(other) else "unknown"), ""


def _named(frames: tuple[wire.TraceFrame, ...], depth: int) -> C10dCall | None:
    """The call that this frame is; None if it is not a call."""
    frame = frames[depth]
    name = function_name(frame)
    if _RENDEZVOUS.search(frame.file):
        is_rpc = any(_is_init_rpc(outer) for outer in frames[depth:])
        kind = "init_rpc" if is_rpc else "init_process_group"
        return _call(kind, "rendezvous", frames, depth)
    if _FUNCTIONAL.search(frame.file):
        found = _FUNCTIONAL_CALL.match(name)
        return _call(found[1], "collective", frames, depth) if found else None
    kind = _PRIVATE_CALLS.get(name, name)
    if not _C10D.search(frame.file) or kind.startswith("_") or _NO_CALLS.match(kind):
        return None
    if kind in _GROUP_MAKERS | TEARDOWN:
        return _call(kind, "rendezvous", frames, depth, is_teardown=kind in TEARDOWN)
    group = _group(frames, depth)
    if kind in _P2P:
        peer = _peer(frame, kind, group)
        return _call(kind, "p2p", frames, depth, group=group, peer=peer)
    return _call(kind, "collective", frames, depth, group=group)


def _is_init_rpc(frame: wire.TraceFrame) -> bool:
    """Whether a frame starts RPC, which has its own store and address."""
    return function_name(frame) == "init_rpc" and "torch/distributed/rpc/" in frame.file


def _call(
    kind: str,
    role: C10dRole,
    frames: tuple[wire.TraceFrame, ...],
    depth: int,
    *,
    group: str = "",
    peer: int | None = None,
    is_teardown: bool = False,
) -> C10dCall:
    # User code may also run inside the call, as when an object is pickled.
    caller = user_frame(frames[depth:])
    return C10dCall(
        kind, role, caller, path_of(frames), len(frames) - depth, group, peer, is_teardown
    )


def _unnamed(stack: wire.ThreadStack) -> str:
    """What a sleeping thread without an op's function on its stack waits for; "" if unknown."""
    leaf = stack.frames[0]
    name = function_name(leaf)
    for file, function, kind in _IN_NATIVE_CODE:
        if leaf.file.endswith(file) and name == function:
            return kind
    location = locate(stack).kind
    if location == "backward":
        return "the backward pass"
    if location == "device":
        return DEVICE_WAIT
    if location == "collective" or _OF_TORCH.search(leaf.file):
        return "a wait for an op"
    if _COMPILED.search(leaf.file):
        return "compiled code"
    # Without the line's text, its variables decide: a C call with a Work at hand waits for it.
    holds_work = any(_WORK.match(value) for _, value in leaf.variables)
    return "a wait for an op" if holds_work and not leaf.source and is_user_code(leaf) else ""


def _group(frames: tuple[wire.TraceFrame, ...], depth: int) -> str:
    """The group's name, "" if the variables do not show it."""
    variables = dict(frames[depth].variables)
    asked = variables.get("group", "")
    if asked == "None":
        return DEFAULT_GROUP
    if asked[:1] in "\"'" and asked:
        return asked.strip("\"'")
    if not asked or depth + 1 >= len(frames) or not frames[depth + 1].file.endswith(_LOGGER):
        return ""
    # The function has filled in the default group, but its wrapper has the original arguments.
    given = dict(frames[depth + 1].variables)
    by_name = given.get("kwargs", "")
    if not by_name or by_name.endswith("...}"):
        return ""
    if '"group"' in by_name:
        return DEFAULT_GROUP if '"group": None' in by_name else ""
    position = list(variables).index("group")
    count = _elements(given.get("args", ""))
    return DEFAULT_GROUP if count is not None and count <= position else ""


def _elements(text: str) -> int | None:
    """How many values a tuple has, by its text; None if that is cut or ambiguous."""
    if not text.startswith("(") or not text.endswith(")"):
        return None
    depth, count, some = 0, 0, False
    for letter in text[1:-1]:
        if letter in "\"'":
            return None  # a string may contain any of these characters
        depth += (letter in "([{<") - (letter in ")]}>")
        count += letter == "," and depth == 0
        some = some or not letter.isspace()
    if "..." in text:
        return None
    return count + some


def _peer(frame: wire.TraceFrame, kind: str, group: str) -> int | None:
    variables, name = dict(frame.variables), "src" if "recv" in kind else "dst"
    names = [name, f"group_{name}"] if group == DEFAULT_GROUP else [name]
    values = (variables.get(name, "") for name in names)
    return next((int(value) for value in values if _INTEGER.match(value)), None)
