"""Figures of statistics in words, as screens, tables and reports write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import GroupView, Rank
from frtop_tui.job.naming import GroupKey, folded, shortened, without_number
from frtop_tui.job.stack_frames import site_name
from frtop_tui.job.statistics import CallRow, JobStatistics
from frtop_tui.job.units import NOT_KNOWN, byte_sizes, duration, timing, window
from frtop_tui.job.unprepared import NEXT_TIME

LONGEST_S: Final = 3600.0
"""As far back as rings reach: 8,192 or 65,536 ops of a rank, usually minutes."""
MANY_BOUNDS: Final = 0.05
"""From this share of ops on, it is said that their ends are upper bounds."""
KERNELS: Final = "frtop kernels"
"""The setting that says which kernels record a rank."""
_SLICES_S: Final = 20.0
"""A window consists of slices of this length, so it may be longer than asked for."""


def op_size_words(row: CallRow) -> str:
    """`52.4 MB` per op on average; `414 B-557 KB` where sizes vary."""
    return byte_sizes(*sizes) if (sizes := mean_sizes(row)) else NOT_KNOWN


def mean_sizes(row: CallRow) -> tuple[float, float] | tuple[()]:
    """Mean bytes per op, twice; where sizes vary, of the smallest and the largest class."""
    mean = row.bytes / row.count if row.count else 0.0
    return row.sizes or ((mean, mean) if mean else ())


def place_words(site: wire.Site | None) -> str:
    """`train.py:231`; `-` if the line is unknown."""
    return site_name(site) or NOT_KNOWN


def labels_of(groups: Iterable[GroupView]) -> dict[GroupKey, str]:
    """What groups are called, by key."""
    return {one.key: one.label for one in groups}


def group_words(row: CallRow, labels: Mapping[GroupKey, str]) -> str:
    """`default_pg`, or `tp:*` for several alike groups; `-` if unknown."""
    if not row.groups:
        return NOT_KNOWN
    return alike_words(labels.get(key, key.name) for key in row.groups)


def alike_words(labels: Iterable[str]) -> str:
    """One name for several groups, by the label of each: `tp:*` for tp:0 to tp:7."""
    names = list(labels)
    if len(names) < 2:
        return names[0] if names else ""
    different = sorted(set(names))
    stems = {without_number(name) for name in different}
    if len(stems) == 1:
        return f"{different[0] if len(different) == 1 else stems.pop()}:*"
    return f"{different[0]} +{len(different) - 1}"


def clock_words(found: JobStatistics) -> str:
    """How far apart clocks of hosts may be; "" for one host."""
    if found.clock_error_ns is None:
        return "hosts' clocks not measured: the last to arrive between hosts is unknown"
    return f"clocks ±{timing(found.clock_error_ns)}" if found.clock_error_ns else ""


def window_words(found: JobStatistics) -> str:
    """`last 60 s`; if rings have lost older ops, the time from which all are counted."""
    seconds = max(0.0, (found.until_ns - found.from_ns) / 1e9)
    if seconds > 0.98 * found.seconds:
        return f"last {window(found.seconds)}"
    return f"all ops of the last {window(seconds)}, older ones in part"


def last_issued_ns(frame: Frame) -> int:
    """When a rank last issued an op, on the operator's clock; 0 if not known."""
    return max((group.issued_ns for group in frame.groups), default=0)


def no_steps_words(frame: Frame) -> str:
    """Why statistics have no steps: none ended in their window, or nobody marks them."""
    begun = [
        (view.status.step, view.age_s(view.status.step_ns, frame.now_ns))
        for view in frame.ranks.values()
        if view.status is not None and view.status.step
    ]
    if not begun:
        if len(frame.coverage.unprepared) == len(frame.ranks) > 0:
            return f"no step is seen from outside; {NEXT_TIME}"
        return "no steps are recorded: call frtop_probe.step() once in each, or use an optimizer"
    step, age_s = max(begun)
    return f"no step ended here: step {step:,} began {duration(age_s)} ago"


def wanted_words(wanted_s: float, found: JobStatistics | None) -> tuple[str, bool]:
    """`window 60 s`, and whether the shown statistics cover it; else the words say what.

    `wanted_s`: what the screen asked for; 0 is as far as rings reach.
    """
    words = f"window {window(wanted_s)}" if wanted_s else "window as far as rings reach"
    longest_s = (wanted_s or LONGEST_S) + _SLICES_S
    if found is None or not found.ranks or not found.with_calls:
        return words, True
    if 0.9 * (wanted_s or LONGEST_S) <= found.seconds <= longest_s:
        return words, True
    return f"{words}, asked for: still {window_words(found)}", False


def waiting_words(frame: Frame, found: JobStatistics | None, no_answer: str = "") -> str:
    """`waiting for the ranks' answers (1 of 4)`; "" once half have answered: some never may.

    `no_answer`: why no answer will be shown, to print instead.
    """
    if frame.recorded is not None:
        return ""
    answered = len(found.ranks) if found is not None and found.with_calls else 0
    every = max(answered, len(frame.ranks))
    if answered and 2 * answered >= every:
        return ""
    return no_answer or f"waiting for the ranks' answers ({answered} of {every})"


def coverage_words(frame: Frame, found: JobStatistics) -> list[str]:
    """What the figures lack, in sentences."""
    lines = [f"no figures of {folded(found.missing)}"] if found.missing else []
    if found.lost:
        lines.append(f"{found.lost:,} ops could not be read")
    return [*lines, *bounds_words(frame, found), *found.notes]


def bounds_words(frame: Frame, found: JobStatistics) -> list[str]:
    """Which share of ops has no exact end, if it matters, and what gives them one."""
    calls = [call for call in found.calls if not call.on_device]
    late, count = sum(call.late for call in calls), sum(call.count for call in calls)
    if not late or late < MANY_BOUNDS * count:
        return []
    known = f"{late:,} of {count:,} ops have only an upper bound (≤) of their end, and no duration"
    if any(map(_has_python_kernels, map(frame.ranks.get, found.ranks))):
        native = "native kernels (`frtop build-native` before the next start) or a profile make"
        return [f"{known}: C++ waits for them, or nobody does; {native} ends exact"]
    return [f"{known}: nobody was seen to wait for them"]


def _has_python_kernels(view: Rank | None) -> bool:
    """Whether the recorder's kernels are those in Python, which do not see what C++ waits for."""
    return view is not None and dict(view.identity.settings).get(KERNELS, "").startswith("Python")


def ranks_words(found: JobStatistics) -> str:
    """`64 ranks`."""
    count = len(found.ranks)
    return shortened(folded(found.ranks)) if count == 1 else f"{count} ranks"
