"""How ops, tensors and the ends of processes are written, on screens and in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from frtop_probe import wire
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import folded, group_label, listed
from frtop_tui.job.rank_sides import RankSide
from frtop_tui.job.units import counted

_DTYPES: Final = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
}


def op_kind(op: wire.Op) -> str:
    """`all_reduce`, `recv <-3`, `broadcast root 0`."""
    signature = op.signature
    if signature is None:
        return "unknown op"
    peer = ""
    if signature.peer is not None:
        arrow = "<-" if "recv" in signature.kind else "->"
        peer = f" {arrow}{signature.peer}"
    elif signature.root is not None:
        peer = f" root {signature.root}"
    return signature.kind + peer


def op_number(op: wire.Op) -> str:
    """`#8812`, the op's number in its group; empty for an op without a number."""
    return "" if op.pseudo or (not op.number and not op.group) else f"#{op.number}"


def number_in(group: GroupView, number: int) -> str:
    """`#8812`, `~#8812` if members do not count from the group's creation, or `no op yet`."""
    return f"{'' if group.exact else '~'}#{number}" if number > 0 else "no op yet"


class HasGroups(Protocol):
    """A rank, or its lane in the timeline."""

    @property
    def groups(self) -> Mapping[int, wire.Group]: ...


def op_group(rank: HasGroups, op: wire.Op) -> str:
    """The label of the group that an op of this rank belongs to."""
    group = rank.groups.get(op.group)
    return "" if group is None else group_label(group.name, group.description)


def op_name(rank: HasGroups, op: wire.Op) -> str:
    """`all_reduce #8812 dp:0`: kind, number and group."""
    return " ".join(filter(None, (op_kind(op), op_number(op), op_group(rank, op))))


def format_tensors(specs: tuple[wire.TensorSpec, ...] | None) -> str:
    """`bf16[4096,8192]`, `f32[1024]x3 +2`; empty when unknown or none."""
    if not specs:
        return ""
    first = specs[0]
    dtype = first.dtype.removeprefix("torch.")
    shape = ",".join(map(str, first.shape))
    times = f"x{first.count}" if first.count > 1 else ""
    more = sum(spec.count for spec in specs[1:])
    return f"{_DTYPES.get(dtype, dtype)}[{shape}]{times}" + (f" +{more}" if more else "")


def op_tensors(op: wire.Op) -> str:
    """`bf16[4096,8192] sum`: what an op moves, and its reduction."""
    signature = op.signature
    if signature is None:
        return ""
    tensors = format_tensors(signature.inputs or signature.outputs)
    return " ".join(filter(None, (tensors, signature.reduce)))


def sides_text(sides: Sequence[RankSide], most: int = 4) -> str:
    """`float32 on ranks 0-6; float16 on rank 7`."""
    return listed([f"{side.value} on {folded(side.ranks)}" for side in sides], most, "; ")


def format_exit(exit_info: wire.ExitInfo) -> str:
    """How the process ended, as far as frtop knows."""
    kills = exit_info.oom_kills
    oom = f", {counted(kills, 'OOM kill')} in its cgroup meanwhile" if kills else ""
    if exit_info.signal is not None:
        return f"ended by signal {exit_info.signal}{oom}"
    if exit_info.exit_code is not None:
        return f"ended with exit status {exit_info.exit_code}{oom}"
    return ("exited cleanly" if exit_info.clean else "process gone, cause unknown") + oom
