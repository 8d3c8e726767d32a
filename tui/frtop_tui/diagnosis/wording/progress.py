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
    "never_heard": "{ranks} never heard of",
    "one_snapshot": "not looked at twice yet",
    "unreadable": "neither /proc nor stacks could be read",
    "advanced": "its ops or steps advance",
    "stack_changed": "its stack changed",
    "cpu": "it uses {percent:.0f} % of a core",
    "ready_cpu": "it could run in both looks, and got {percent:.1f} % of a core",
    "io": "it reads or writes: {count:,} bytes in {seconds:.1f}s",
    "memory": "its memory grows: {mebibytes:,} MiB in {seconds:.1f}s",
    "no_processor": "it could run, and got no processor in {seconds:.1f}s between two looks",
    "unchanged": "no op, step, CPU time or I/O in {seconds:.1f}s between two looks",
    "one_dump": "a single dump does not tell whether it moves",
    "dump_advanced": "it has issued or completed ops between two dumps",
    "dumps_too_close": "that its dumps are some seconds apart is not known",
    "dump_unchanged": "nothing issued, nothing completed in {seconds:.1f}s between two dumps",
    "stacks_once": "stacks were taken once: whether it moves they do not tell",
    "stack_lines_unknown": "not all lines of its stack are known {apart}",
    "stack_moved": "its stack is another one {apart}",
    "stacks_too_close": "its stack is the same {apart}: too near to say anything",
    "stack_runs": "it runs, at the same lines {apart}",
    "stack_same": "its stack is the same {apart}",
    "nothing_to_do": "with nothing to do there is nothing to see",
    "input_open": "whether anybody will type or send anything cannot be seen",
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
