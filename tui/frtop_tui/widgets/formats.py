"""How ages, sizes, ops, files and names are written, the same on every screen."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import group_label, job_title

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


def short_path(path: str) -> str:
    """The path relative to the current folder, where it lies below that."""
    try:
        return path.removeprefix(f"{Path.cwd()}/")
    except OSError:  # the current folder was deleted
        return path


def shorten_ranks(folded: str, width: int) -> str:
    """A folded list of ranks in `width` cells, cut between two ranges: `0-36,40,..`."""
    if len(folded) <= width:
        return folded
    return folded[: max(0, width - 2)].rpartition(",")[0] + ",.."


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


def group_name(group: GroupView) -> str:
    return group_label(group.key.name, group.description)


def job_name(frame: Frame) -> str:
    return "no job yet" if frame.job is None else job_title(frame.job)
