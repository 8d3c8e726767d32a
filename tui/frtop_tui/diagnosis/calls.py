"""From a stack to the collective that its thread is in, where there is nothing but stacks.

torch's own functions say which: `all_reduce` in `distributed_c10d.py` is the call, and the
first frame outside of torch the line that made it. A wait for a `Work` has no frame of its
own, so some waits are known by the place alone, and of what kind they are stays open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe import wire
from frtop_tui.diagnosis import places
from frtop_tui.diagnosis.places import bare_name
from frtop_tui.job.stack_frames import is_user_code, user_frame

Role = Literal[
    "collective",
    "p2p",
    "meeting",  # of processes, before there is a group or while one is made
    "implicit",  # a wait for an op of which the stack does not tell the kind
]
Order = Literal["same", "further", "behind", "unknown"]
DEFAULT_GROUP: Final = "default_pg"

_SENDS: Final = frozenset(
    ["send", "recv", "isend", "irecv", "send_object_list", "recv_object_list", "batch_isend_irecv"]
)
_MEETINGS: Final = frozenset(
    [
        "init_process_group",
        "new_group",
        "split_group",
        "shrink_group",
        "new_subgroups",
        "new_subgroups_by_enumeration",
    ]
)
_LEAVING: Final = frozenset({"destroy_process_group", "abort_process_group"})
_NO_CALLS: Final = re.compile(r"^(get_|is_|supports_|set_|register_|record_comm$|__|wrapper$)")
"""Of torch.distributed: what issues nothing. All other public functions do, also new ones."""
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
    # Python functions whose collective is one call into C++.
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
class Call:
    """The op that a thread is in. `path` are its frames, outermost first.

    `own` is the line that made the call, and `entered` how many steps of the path lead into
    it. `group` is "" where the stack does not tell it. `leaves` means that it is about to
    leave all groups, and waits in none.
    """

    kind: str
    role: Role
    own: wire.TraceFrame
    path: tuple[tuple[str, str, int], ...]
    entered: int
    group: str = ""
    peer: int | None = None
    leaves: bool = False

    @property
    def line(self) -> str:
        return places.place_line(self.own)

    @property
    def steps(self) -> tuple[tuple[str, str, int], ...]:
        """What stays the same while it does not move: meetings ask their store in turns."""
        return self.path[: self.entered] if self.role == "meeting" else self.path

    @property
    def text(self) -> str:
        """`all_reduce, called at train.py:40 (step)`."""
        if self.role == "implicit":
            return f"{self.kind} at {self.line}"
        side = ""
        if self.peer is not None:
            side = (
                f" {'from' if self.kind.startswith(('recv', 'irecv')) else 'to'} rank {self.peer}"
            )
        of = f" of {self.group}" if self.group else ""
        return f"{self.kind}{side}{of}, called at {self.line}"


def call_of(stack: wire.ThreadStack) -> Call | None:
    """The call of torch.distributed that a thread is in, None if it is in none."""
    frames = stack.frames
    if not frames:
        return None
    for depth in range(len(frames) - 1, -1, -1):
        found = _named(frames, depth)
        if found is not None:
            return found
    if stack.active or stack.owns_gil:
        return None
    kind = _unnamed(stack)
    return _call(kind, "implicit", frames, 0) if kind else None


def path_of(frames: Sequence[wire.TraceFrame]) -> tuple[tuple[str, str, int], ...]:
    """A stack's lines, outermost first."""
    return tuple((frame.file, frame.function, frame.line) for frame in reversed(frames))


def differ(
    one: Sequence[tuple[str, str, int]], other: Sequence[tuple[str, str, int]]
) -> bool | None:
    """Whether two stacks are at different lines; None where that takes a line that is not known.

    Such is line 0: it equals none, and differs from none.
    """
    unknown = False
    for mine, theirs in zip(one, other, strict=False):
        if mine[:2] != theirs[:2] or (mine[2] != theirs[2] and mine[2] and theirs[2]):
            return True
        unknown = unknown or not (mine[2] and theirs[2])
    if len(one) != len(other):
        return True
    return None if unknown else False


def order_of(
    one: Sequence[tuple[str, str, int]], other: Sequence[tuple[str, str, int]]
) -> tuple[Order, str]:
    """Whether `one` is further on in the program than `other`, going by lines alone.

    Also what shows it. A loop may lead back, so that this is a hint and no proof.
    """
    for mine, theirs in zip(one, other, strict=False):
        if mine == theirs and mine[2]:
            continue
        frame, past = _frame(mine), _frame(theirs)
        known = mine[2] and theirs[2]
        if mine[:2] != theirs[:2] or not known or not is_user_code(frame):
            return "unknown", ""
        words = f"{places.place_line(frame)} against {places.place_line(past)}"
        return ("further" if mine[2] > theirs[2] else "behind"), words
    return ("same" if len(one) == len(other) else "unknown"), ""


def _frame(step: tuple[str, str, int]) -> wire.TraceFrame:
    return wire.TraceFrame(step[1], step[0], step[2])


def _named(frames: tuple[wire.TraceFrame, ...], depth: int) -> Call | None:
    """The call that this frame is the function of; its outermost one is what was called."""
    frame = frames[depth]
    name = bare_name(frame)
    if _RENDEZVOUS.search(frame.file):
        return _call("init_process_group", "meeting", frames, depth)
    if _FUNCTIONAL.search(frame.file):
        kind = _FUNCTIONAL_CALL.match(name)
        return _call(kind[1], "collective", frames, depth) if kind else None
    return _c10d_call(frames, depth, name) if _C10D.search(frame.file) else None


def _c10d_call(frames: tuple[wire.TraceFrame, ...], depth: int, name: str) -> Call | None:
    kind = _PRIVATE_CALLS.get(name, name)
    if kind.startswith("_") or _NO_CALLS.match(kind):
        return None
    if kind in _MEETINGS | _LEAVING:
        return _call(kind, "meeting", frames, depth, leaves=kind in _LEAVING)
    group = _group(frames, depth)
    if kind in _SENDS:
        peer = _peer(frames[depth], kind, group)
        return _call(kind, "p2p", frames, depth, group=group, peer=peer)
    return _call(kind, "collective", frames, depth, group=group)


def _call(
    kind: str,
    role: Role,
    frames: tuple[wire.TraceFrame, ...],
    depth: int,
    *,
    group: str = "",
    peer: int | None = None,
    leaves: bool = False,
) -> Call:
    # Inside of the call there may be frames of a user, too: what is pickled there, say.
    own = user_frame(frames[depth:])
    return Call(kind, role, own, path_of(frames), len(frames) - depth, group, peer, leaves)


def _unnamed(stack: wire.ThreadStack) -> str:
    """What a thread that is asleep waits for, where no function of an op is on its stack."""
    leaf = stack.frames[0]
    name = bare_name(leaf)
    for file, function, kind in _IN_NATIVE_CODE:
        if leaf.file.endswith(file) and name == function:
            return kind
    kind_of_place = places.classify(stack).kind
    if kind_of_place == "backward":
        return "the backward pass"
    if kind_of_place == "device":
        return "a wait for a device"
    if kind_of_place == "collective" or _OF_TORCH.search(leaf.file):
        return "a wait for an op"
    if _COMPILED.search(leaf.file):
        return "compiled code"
    # No text of the line, but what it holds: a C call with a Work at hand is its wait.
    holds_work = any(_WORK.match(value) for _, value in leaf.variables)
    return "a wait for an op" if holds_work and not leaf.source and is_user_code(leaf) else ""


def _group(frames: tuple[wire.TraceFrame, ...], depth: int) -> str:
    """The name of the group that was asked for, as far as variables tell."""
    variables = dict(frames[depth].variables)
    asked = variables.get("group", "")
    if asked == "None":
        return DEFAULT_GROUP
    if asked[:1] in "\"'" and asked:
        return asked.strip("\"'")
    if not asked or depth + 1 >= len(frames) or not frames[depth + 1].file.endswith(_LOGGER):
        return ""
    # The function has put the default group in place; what it was given, its wrapper knows.
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
    """How many values a tuple has, by how it is written; None if not all are."""
    if not text.startswith("(") or not text.endswith(")"):
        return None
    depth, count, some = 0, 0, False
    for letter in text[1:-1]:
        if letter in "\"'":
            return None  # what stands in a text may look like anything
        depth += (letter in "([{<") - (letter in ")]}>")
        count += letter == "," and depth == 0
        some = some or not letter.isspace()
    if "..." in text:
        return None
    return count + some


def _peer(frame: wire.TraceFrame, kind: str, group: str) -> int | None:
    variables = dict(frame.variables)
    receives = "recv" in kind
    names = ["src" if receives else "dst"]
    if group == DEFAULT_GROUP:
        names.append("group_src" if receives else "group_dst")
    for name in names:
        value = variables.get(name, "")
        if _INTEGER.match(value):
            return int(value)
    return None
