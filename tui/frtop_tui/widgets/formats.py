"""How ages, sizes, ops, files and names are written, the same on every screen."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import duration, group_label, job_title

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


def format_age_coarse(seconds: float) -> str:
    """Like `duration` in integer seconds, `<1s` at first: live tables do not flicker."""
    if seconds < 1:
        return "<1s"
    return f"{int(seconds)}s" if seconds < 10 else duration(seconds)


def format_duration(nanoseconds: int) -> str:
    """`350 us`, `18.2 ms`, `2.35 s`; from ten seconds on like `duration`."""
    if nanoseconds < 1_000_000:
        return f"{max(0, nanoseconds) / 1e3:.0f} us"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds / 1e6:.1f} ms"
    if nanoseconds < 10_000_000_000:
        return f"{nanoseconds / 1e9:.2f} s"
    return duration(nanoseconds / 1e9)


def format_bytes(size: int) -> str:
    """`812 B`, `1.5 M`, `41 G`; units are powers of 1024."""
    value = float(size)
    for unit in ("B", "K", "M", "G"):
        if value < 1024:
            return f"{value:.1f} {unit}" if unit != "B" and value < 10 else f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} T"


def format_file_size(size: int) -> str:
    """`3.1 MB`, `812 B`."""
    return format_bytes(size).removesuffix("B") + "B"


def format_local_time(wall_ns: int) -> str:
    """`2026-11-20 03:02` in the viewer's time zone."""
    return f"{datetime.fromtimestamp(wall_ns / 1e9).astimezone():%Y-%m-%d %H:%M}"


def format_local_clock(wall_ns: int) -> str:
    """`03:02:11` in the viewer's time zone."""
    return f"{datetime.fromtimestamp(wall_ns / 1e9).astimezone():%H:%M:%S}"


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


def format_site(where: wire.Site | None) -> str:
    """`train.py:231`."""
    if where is None:
        return ""
    name = where.file.rpartition("/")[2]
    return f"{name}:{where.line}" if where.line else name


def group_name(group: GroupView) -> str:
    return group_label(group.key.name, group.description)


def job_name(frame: Frame) -> str:
    return "no job yet" if frame.job is None else job_title(frame.job)
