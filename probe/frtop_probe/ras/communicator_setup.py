"""Whether a rank is making a communicator: asking RAS meanwhile has crashed jobs.

Only signs that can be seen from outside. NCCL makes a communicator with a group's first op, so a
rank inside a first op counts, too. What makes them in C alone, with nothing in Python, is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from frtop_probe import wire

NOT_SEEN: Final = "communicators that C code makes without a call from Python"
"""What none of the checks can rule out."""
_NCCL_CALL: Final = re.compile(r"p?nccl_?(comm|group)_?(init|split|shrink|grow|end)", re.IGNORECASE)
_TORCH: Final = re.compile(r"/torch/distributed/")
_MAKERS: Final = frozenset(
    {
        "init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
        "split_group", "shrink_group", "merge_remote_group", "reinit_process_group",
        "init_device_mesh", "_new_group_with_tag", "_new_process_group_helper",
        "_split_process_group", "eager_connect_single_device", "_perform_nocolor_split",
    }
)  # fmt: skip
_MESSAGES: Final = frozenset({"send", "recv", "isend", "irecv"})
_OPS_FILE: Final = re.compile(r"/torch/distributed/(distributed_c10d|_functional_collectives)\.py$")
_DEVICES: Final = ("nccl", "rccl", "xccl")


def maker_in_ops(pending: Iterable[wire.Op]) -> str:
    """The call that makes a group and is pending, "" for none."""
    for op in pending:
        if op.pseudo and op.pending:
            return op.signature.kind if op.signature is not None else "a call that makes a group"
    return ""


def maker_in_stacks(threads: Iterable[wire.ThreadStack], first_ops: Iterable[str] = ()) -> str:
    """The call in a thread's stack that makes a communicator, or may; "" for none.

    Args:
        threads: of one rank.
        first_ops: names of its groups whose first op is not known to be over.
    """
    first = tuple(first_ops)
    for thread in threads:
        for frame in thread.frames:
            if _NCCL_CALL.match(frame.function):
                return frame.function
            if frame.function in _MAKERS and _TORCH.search(frame.file):
                return frame.function
            if first and _OPS_FILE.search(frame.file):
                return f"{frame.function}, the first op of group {first[0]}"
    return ""


def message_in_stacks(threads: Iterable[wire.ThreadStack]) -> str:
    """A send or receive in a thread's stack: its first one makes a communicator of two ranks."""
    frames = (frame for thread in threads for frame in thread.frames)
    found = (f for f in frames if f.function in _MESSAGES and _OPS_FILE.search(f.file))
    return next((frame.function for frame in found), "")


def groups_in_first_op(
    groups: Iterable[wire.Group], progress: Mapping[int, wire.GroupProgress]
) -> tuple[str, ...]:
    """Names of the groups that have issued one op: it makes the communicator."""
    found = []
    for group in groups:
        front = progress.get(group.id)
        if front is not None and front.number + front.p2p == 1 and _is_on_device(group.backend):
            found.append(group.description or group.name)
    return tuple(found)


def _is_on_device(backend: str) -> bool:
    return any(name in backend for name in _DEVICES)
