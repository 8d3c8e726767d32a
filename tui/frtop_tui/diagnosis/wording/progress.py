"""Sentences about what shows that a rank makes progress, or that it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_tui.diagnosis.evidence.progress import ProgressSeen, ProgressSign
from frtop_tui.job.naming import folded

_TEXTS: Final[dict[ProgressSign, str]] = {
    "ended": "its process ended",
    "stopped": "its process is stopped",
    "recent_op": "it still issues ops",
    "never_heard": "no agent has reported {ranks}",
    "one_snapshot": "fewer than two snapshots so far",
    "unreadable": "neither /proc nor stacks could be read",
    "advanced": "its ops or steps advance",
    "stack_changed": "its stack changed",
    "cpu": "it uses {percent:.0f} % of a core",
    "spins": "it uses {percent:.0f} % of a core, as a wait for a device does: that is no progress",
    "ready_cpu": "it could run in both snapshots, and got {percent:.1f} % of a core",
    "io": "it reads or writes: {count:,} bytes in {seconds:.1f}s",
    "memory": "its memory grows: {mebibytes:,} MiB in {seconds:.1f}s",
    "no_processor": "it could run, and got no processor in {seconds:.1f}s between two snapshots",
    "unchanged": "no op, step, CPU time or I/O in {seconds:.1f}s between two snapshots",
    "one_dump": "one dump does not show whether it moves",
    "dump_advanced": "it has issued or completed ops between two dumps",
    "dumps_too_close": "its two dumps may be too close in time to compare",
    "dump_unchanged": "nothing issued, nothing completed in {seconds:.1f}s between two dumps",
    "stacks_once": "its stacks were taken once: they do not show whether it moves",
    "stack_lines_unknown": "some lines of its stack are unknown {apart}",
    "stack_moved": "its stack differs {apart}",
    "stacks_too_close": "its stack is the same {apart}: too close in time to compare",
    "stack_runs": "it runs at the same lines {apart}: it computes, or waits busily",
    "stack_same": "its stack is the same {apart}",
    "stack_same_child": "its stack is the same {apart}; processes that it waits for may work",
    "nothing_to_do": "it has no work, so it shows no progress",
    "input_open": "nothing shows whether anybody will type or send anything",
}


def progress_text(seen: ProgressSeen, ranks: Sequence[int] = ()) -> str:
    """What shows the progress of one of `ranks`, or what is missing to tell."""
    return _TEXTS[seen.sign].format(
        ranks=folded(ranks) if ranks else "it",
        seconds=seen.seconds,
        apart=f"in two dumps, {seen.seconds:.1f}s apart",
        percent=100 * seen.amount,
        count=int(seen.amount),
        mebibytes=int(seen.amount) >> 20,
    )
