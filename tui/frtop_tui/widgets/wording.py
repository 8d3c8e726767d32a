"""How values read: ages, sizes, ops, postures. One place, so that every screen agrees."""

from __future__ import annotations

import math
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import GroupView, Health, RankState

LETTERS: Final[dict[RankState, str]] = {
    "moving": ".",
    "blocked": "b",
    "late": "L",
    "silent": "S",
    "stopped": "T",
    "dead": "D",
    "done": "o",
    "unheard": "?",
    "starting": "s",
}
MEANINGS: Final[dict[RankState, str]] = {
    "late": "others wait for it, or all are kept outside of any op",
    "dead": "its process ended, and not in an orderly way",
    "silent": "alive, but its beat stopped: something holds the GIL",
    "stopped": "its process is stopped: SIGSTOP, or a debugger",
    "unheard": "its host or agent cannot be reached: last known state",
    "blocked": "waits in an op",
    "starting": "has no group yet",
    "moving": "its numbers advance, or nothing says otherwise",
    "done": "left cleanly",
}
"""In the order of interest: who may be guilty first."""
URGENCY: Final[dict[RankState, int]] = {posture: n for n, posture in enumerate(MEANINGS)}

HEALTH_TONE: Final[dict[Health, str]] = {
    "connecting": "warn",
    "empty": "warn",
    "starting": "strong",
    "healthy": "good",
    "waiting": "warn",
    "unheard": "warn",
    "held up": "warn",
    "hung": "alarm",
    "dead": "alarm",
    "diverged": "alarm",
    "undecided": "warn",
    "ended": "strong",
}

STATES: Final = {
    "R": "running",
    "S": "sleeping",
    "D": "in the kernel, uninterruptible",
    "T": "stopped",
    "t": "stopped by a tracer",
    "Z": "zombie",
    "X": "gone",
    "I": "idle",
}
"""Letters of `/proc/PID/stat` in words."""

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


def age(seconds: float) -> str:
    """`0.2s`, `12s`, `4m12s`, `3h12m`, `2d03h`."""
    if seconds < 10:
        # Rounded down, like all the others: an age never runs ahead of the clock.
        return f"{math.floor(max(0.0, seconds) * 10) / 10:.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def calm(seconds: float) -> str:
    """An age in whole seconds, `<1s` for what is fresh: nothing flickers in a live table."""
    if seconds < 1:
        return "<1s"
    return f"{int(seconds)}s" if seconds < 10 else age(seconds)


def duration(nanoseconds: int) -> str:
    """`350 us`, `18.2 ms`, `2.35 s`, and as `age` from ten seconds on."""
    if nanoseconds < 1_000_000:
        return f"{max(0, nanoseconds) / 1e3:.0f} us"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds / 1e6:.1f} ms"
    if nanoseconds < 10_000_000_000:
        return f"{nanoseconds / 1e9:.2f} s"
    return age(nanoseconds / 1e9)


def amount(size: int) -> str:
    """Bytes: `41 G`, `1.5 M`."""
    value = float(size)
    for unit in ("B", "K", "M", "G"):
        if value < 1024:
            return f"{value:.1f} {unit}" if unit != "B" and value < 10 else f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} T"


def ranks_word(number: int) -> str:
    """`1 rank`, `64 ranks`."""
    return f"{number} rank" if number == 1 else f"{number:,} ranks"


def cut(folded: str, width: int) -> str:
    """A folded list of ranks in `width` cells, cut between two ranges: `0-36,40,..`."""
    if len(folded) <= width:
        return folded
    return folded[: max(0, width - 2)].rpartition(",")[0] + ",.."


def tensors(specs: tuple[wire.TensorSpec, ...] | None) -> str:
    """`bf16[4096,8192]`, `f32[1024]x3 +2`; empty when unknown or none."""
    if not specs:
        return ""
    first = specs[0]
    dtype = first.dtype.removeprefix("torch.")
    shape = ",".join(map(str, first.shape))
    times = f"x{first.count}" if first.count > 1 else ""
    more = sum(spec.count for spec in specs[1:])
    return f"{_DTYPES.get(dtype, dtype)}[{shape}]{times}" + (f" +{more}" if more else "")


def kind(op: wire.Op) -> str:
    """What the op is, with what must be known to find its other side."""
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


def number(op: wire.Op) -> str:
    """`#8812`, nothing for what has no place in a group."""
    return "" if op.pseudo or (not op.number and not op.group) else f"#{op.number}"


def site(where: wire.Site | None) -> str:
    """`train.py:231`."""
    if where is None:
        return ""
    name = where.file.rpartition("/")[2]
    return f"{name}:{where.line}" if where.line else name


def group_label(description: str, name: str) -> str:
    """What people call the group: its description if it was given one, else its name."""
    return name if description in ("", "undefined") else description


def group_of(rank: JudgedRank, op: wire.Op) -> str:
    """The label of the group an op of this rank belongs to."""
    group = rank.groups.get(op.group)
    return "" if group is None else group_label(group.description, group.name)


def group_name(group: GroupView) -> str:
    return group_label(group.description, group.key.name)


def ending(end: wire.ExitInfo) -> str:
    """How the process ended, and no more than is known of it."""
    oom = f", {end.oom_kills} oom kills in its cgroup then" if end.oom_kills else ""
    if end.signal is not None:
        return f"ended by signal {end.signal}{oom}"
    if end.exit_code is not None:
        return f"ended with exit code {end.exit_code}{oom}"
    return ("left cleanly" if end.clean else "process gone, cause unknown") + oom


def job_name(frame: Frame) -> str:
    job = frame.job
    if job is None:
        return "no job yet"
    return job.name or job.run_id or f"{job.master_addr}:{job.master_port}"
