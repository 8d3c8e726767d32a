"""Sentences about threads of one rank that wait for each other, and about its children."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.stack_location import line_and_function, system_call
from frtop_tui.diagnosis.evidence.thread_chain import ThreadChain, program_threads
from frtop_tui.diagnosis.evidence.working_thread import kernel_view, name_of
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import duration
from frtop_tui.job.stack_frames import user_frame

_ANY: Final = {
    "thread": "for a thread to end",
    "future": "for a future",
    "lock": "for a lock",
    "queue": "at an empty queue",
    "full queue": "for room in a full queue",
    "tasks of a queue": "until all items of a queue are done",
    "semaphore": "for a semaphore",
    "event": "for an event or a condition",
    "pool": "for a result of its pool of processes",
    "child's queue": "for what a child process puts into a queue",
    "child's full queue": "for a child process to empty a queue",
}
"""What a thread waits for, by `wire.ThreadWait.kind`."""
_WHOSE: Final = {
    "thread": "for {} to end",
    "future": "for a future, most likely that of {}",
    "lock": "for a lock that {} holds",
}
"""The same, where it is known who is meant; else that one has the object at hand."""
_MOST: Final = 4
"""Threads, or children, that are listed."""
_FOR_OTHERS: Final = frozenset({"lock", "pipe", "dataloader", "subprocess", "unknown"})
"""Causes with which a rank may wait for a child that has ended."""


def links_text(view: Rank, chain: ThreadChain) -> str:
    """`waits at train.py:70 (save) for thread "saver" to end, which waits ...`: all links."""
    meant = [*chain.links[1:], chain.end]
    return ", which ".join(
        _link(view, stack, other) for stack, other in zip(chain.links, meant, strict=True)
    )


def _link(view: Rank, stack: wire.ThreadStack, other: wire.ThreadStack | None) -> str:
    kind = stack.wait.kind if stack.wait is not None else ""
    at = f"waits at {line_and_function(user_frame(stack.frames))}"
    if other is not None:
        name = "it" if other is stack else name_of(view, other)
        return f"{at} {_WHOSE.get(kind, _ANY.get(kind, '') + ' that {} has at hand').format(name)}"
    idents = stack.wait.threads if stack.wait is not None else ()
    several = [name_of(view, one) for one in view.threads if one.ident in idents]
    return f"{at} {_ANY.get(kind, '')}" + (f" ({' or '.join(several)})" if several else "")


def others_evidence(view: Rank) -> tuple[str, ...]:
    """Where the other threads of the program are: one of them may be waited for."""
    others = program_threads(view)
    lines = [_where(view, one) for one in others[:_MOST]]
    if len(others) > _MOST:
        lines.append(f"{len(others) - _MOST} more threads of the program")
    return tuple(lines)


def _where(view: Rank, stack: wire.ThreadStack) -> str:
    call = system_call(kernel_view(view, stack))
    at = line_and_function(user_frame(stack.frames))
    return f"{name_of(view, stack)} is at {at}{f', in {call}' if call else ''}"


def ended_children(view: Rank, cause: str, now_ns: int) -> tuple[str, ...]:
    """Children that have ended: nobody has waited for them, or it was since the rank's last op.

    Of the latter nothing tells how they ended; workers also end because their work is done.
    """
    if cause not in _FOR_OTHERS or view.snapshot is None:
        return ()
    ended = [
        f"its child pid {child.pid} ({child.name}) has ended{_how(child.exit_status)}"
        for child in view.snapshot.processes[1:]
        if child.state in "ZX"
    ]
    last_ns = max((one.issued_ns for one in view.group_progress.values()), default=0)
    ended += [
        f"its child pid {child.pid} ({child.name}) ended"
        f" {duration(view.age_s(child.at_ns, now_ns))} ago"
        for child in reversed(view.snapshot.ended)
        if child.at_ns >= last_ns
    ]
    return tuple(ended[:_MOST])


def _how(status: int) -> str:
    """How a process ended, by what waitpid(2) would tell. Who may not read it gets 0."""
    if status <= 0:
        return ""
    if number := status & 0x7F:
        with suppress(ValueError):
            return f", by {signal.Signals(number).name}"
        return f", by signal {number}"
    return f", with exit status {status >> 8}"
