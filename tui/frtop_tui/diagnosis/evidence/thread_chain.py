"""Waits between the threads of one rank, followed to their end.

MainThread waits for a future, a thread of an executor works on it and waits for a lock, and who
holds that reads from a socket: that one is the reason. What each thread waits for comes with the
stacks (`wire.ThreadWait`); where it does not tell which thread is meant, nobody is.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.working_thread import kernel_view, working_process, working_thread
from frtop_tui.job.model import Rank
from frtop_tui.job.stack_frames import is_user_code


class ThreadChain(Struct, frozen=True):
    """Threads of which each waits for the next one, the working one first.

    `end` waits for no other thread; None where that is not known. In a cycle it is the one in
    `links` that the last of them waits for: it waits for itself.
    """

    links: tuple[wire.ThreadStack, ...]
    end: wire.ThreadStack | None = None
    is_deadlock: bool = False

    @property
    def waits(self) -> tuple[wire.ThreadWait, ...]:
        """What each of `links` waits for."""
        return tuple(one.wait for one in self.links if one.wait is not None)


def thread_chain(view: Rank) -> ThreadChain | None:
    """The chain from the working thread on; None if it waits for no other thread."""
    working = working_thread(view)
    if working is None or working.stack.wait is None:
        return None
    by_ident = {one.ident: one for one in view.threads}
    links, at = list[wire.ThreadStack](), working.stack
    while at.wait is not None:
        links.append(at)
        meant = [by_ident[ident] for ident in at.wait.threads if ident in by_ident]
        if len(meant) != 1:
            return ThreadChain(tuple(links))
        at = meant[0]
        if at in links:
            return ThreadChain(tuple(links), at, is_deadlock=True)
    return ThreadChain(tuple(links), at)


def awaited_threads(view: Rank) -> tuple[wire.ThreadStack, ...]:
    """The threads that the working one may wait for: one, if that is known."""
    chain, working = thread_chain(view), working_thread(view)
    if chain is not None and chain.end is not None:
        return () if chain.is_deadlock else (chain.end,)
    mine = working.stack if working is not None else None
    ours = view.identity.recorder_tid
    return tuple(one for one in view.threads if one is not mine and one.frames and one.tid != ours)


def acting_stack(view: Rank) -> wire.ThreadStack | None:
    """The stack of the thread at the end of the chain; without one, of the working thread."""
    chain = thread_chain(view)
    if chain is not None and chain.end is not None and not chain.is_deadlock:
        return chain.end
    working = working_thread(view)
    return working.stack if working is not None else None


def acting_process(view: Rank) -> wire.Process | None:
    """What the kernel shows of that thread; None if that is not known."""
    stack = acting_stack(view)
    working = working_thread(view)
    if stack is None or (working is not None and stack is working.stack):
        return working_process(view)
    return kernel_view(view, stack)


def by_acting_thread(view: Rank, process: wire.Process) -> wire.Process:
    """The rank's process, in the state and the call of that thread."""
    task = acting_process(view)
    if task is None or task is view.process:
        return process
    return replace(
        process, state=task.state, wchan=task.wchan, syscall=task.syscall, file=task.file
    )


def program_threads(view: Rank) -> tuple[wire.ThreadStack, ...]:
    """The other threads that are in the program's code."""
    return tuple(one for one in awaited_threads(view) if any(map(is_user_code, one.frames)))
