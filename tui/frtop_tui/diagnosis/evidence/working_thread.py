"""Which thread of a rank runs its training.

Mostly that is MainThread. If a framework keeps an event loop there, as Ray does, another thread
trains: the one that issues the ops. Where a rank is, is always read from the working thread, and
only by these functions.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.rpc_call import handler_of, is_handler
from frtop_tui.diagnosis.evidence.stack_location import function_name, locate, serves_rpc
from frtop_tui.job.model import Rank
from frtop_tui.job.stack_frames import is_user_code

Sign = Literal[
    "main",  # no sign of another one
    "ops",  # it issues the rank's ops
    "code",  # MainThread is in an event loop, and only this one is in torch's training code
    "handler",  # MainThread waits for remote calls, and only this one works on one
    "autograd",  # it runs program code for a backward pass that the other one waits for
]
MAIN_NAME: Final = "MainThread"
_TRAINING: Final = re.compile(
    r"(?:^|/)torch/(?:nn/(?:modules/module|parallel/)|optim/|autograd/"
    r"|utils/(?:data/dataloader|checkpoint)"
    r"|distributed/(?:distributed_c10d|_functional_collectives|fsdp/|_composable/|pipelining/"
    r"|tensor/))"
)
"""Code that is called only for training, or by a model."""


class WorkingThread(Struct, frozen=True):
    """The thread in the last dump, the kernel's view of it (None: unknown), and its sign."""

    stack: wire.ThreadStack
    process: wire.Process | None
    sign: Sign = "main"

    @property
    def name(self) -> str:
        """`MainThread`, or `thread "trainer"`."""
        if self.sign == "autograd":
            return "autograd's thread"
        if self.sign == "handler":
            return f"the handler of a remote call, {thread_name(self.stack)},"
        return MAIN_NAME if self.sign == "main" else thread_name(self.stack)


def working_thread(view: Rank) -> WorkingThread | None:
    """The thread that runs the rank's training; None if no dump shows its threads."""
    threads = view.threads
    if not threads:
        return None
    main = view.main_in(threads)
    others = [one for one in threads if one.frames and one is not main]
    stack, sign = (_other(view, main, others) if others else None) or (main, "main")
    if others and (hook := _autograds(stack, others)) is not None:
        stack, sign = hook, "autograd"
    if is_handler(stack):
        sign = "handler"
    by_process = stack is main and sign != "handler"
    return WorkingThread(stack, view.process if by_process else _task_of(view, stack), sign)


def working_stack(view: Rank) -> wire.ThreadStack | None:
    """Its stack in the last dump; None if there is none."""
    working = working_thread(view)
    return working.stack if working is not None else None


def in_handler(view: Rank) -> bool:
    """Whether it works on a remote call, and does nothing else."""
    working = working_thread(view)
    return working is not None and working.sign == "handler"


def prior_working_stack(view: Rank) -> wire.ThreadStack | None:
    """The same thread in the previous look."""
    working = working_thread(view)
    if working is None or working.sign == "main":
        return view.prior_stack
    return next((one for one in view.prior_threads if one.ident == working.stack.ident), None)


def working_process(view: Rank) -> wire.Process | None:
    """The kernel's view of it; None if not known.

    Without a dump, the kernel's number is known for the main thread only.
    """
    working = working_thread(view)
    if working is not None:
        return working.process
    main = view.identity.main_ident
    return None if main and _issuing_ident(view, main) else view.process


def runs_training(view: Rank, ident: int) -> bool:
    """Whether a thread, by its pthread handle, is the working one; 0 always counts as it."""
    main = view.identity.main_ident
    if not (ident and main) or ident == main:
        return True  # the usual case, which needs no stacks
    working = working_thread(view)
    if working is None:
        return _issuing_ident(view, main) == ident
    return working.stack.ident == ident


def kernel_view(view: Rank, stack: wire.ThreadStack) -> wire.Process | None:
    """The kernel's view of one of the rank's threads; None if not known."""
    if stack is view.main_stack and not is_handler(stack):
        return view.process
    return _task_of(view, stack)


def _task_of(view: Rank, stack: wire.ThreadStack) -> wire.Process | None:
    tasks = view.snapshot.threads if view.snapshot is not None else ()
    return next((task for task in tasks if task.pid == stack.tid), None) if stack.tid else None


def working_name(view: Rank) -> str:
    """`MainThread`, or the thread that works in its place."""
    working = working_thread(view)
    return working.name if working is not None else MAIN_NAME


def name_of(view: Rank, stack: wire.ThreadStack) -> str:
    """`MainThread`, `thread "trainer"`, `thread 4711`."""
    return MAIN_NAME if stack is view.main_stack else thread_name(stack)


def thread_name(stack: wire.ThreadStack) -> str:
    """`thread "trainer"`, `thread 4711`."""
    return f'thread "{stack.name}"' if stack.name else f"thread {stack.tid or stack.ident}"


def _other(
    view: Rank, main: wire.ThreadStack, others: list[wire.ThreadStack]
) -> tuple[wire.ThreadStack, Sign] | None:
    """A working thread other than the main one, and its sign."""
    ident = _issuing_ident(view, main.ident)
    if ident and (found := next((one for one in others if one.ident == ident), None)) is not None:
        return found, "ops"
    if locate(main, view.process).kind != "idle":
        return None
    if (ident := _issuing_ident(view, 0)) and ident != main.ident:
        # What the main thread issued came earlier, as when it set up the job.
        found = next((one for one in others if one.ident == ident), None)
        return (found, "ops") if found is not None else None
    if serves_rpc(main.frames) and (handler := handler_of(view)) is not None:
        return handler, "handler"
    training = [one for one in others if _trains(one, view)]
    return (training[0], "code") if len(training) == 1 else None


def _autograds(stack: wire.ThreadStack, others: list[wire.ThreadStack]) -> wire.ThreadStack | None:
    """The only autograd thread that runs program code while `stack` waits for the pass.

    Threads that Python has started begin in `threading`; autograd's are started by C++.
    """
    if not stack.frames or function_name(stack.frames[0]) != "_engine_run_backward":
        return None
    found = [
        one
        for one in others
        if one is not stack
        and function_name(one.frames[-1]) != "_bootstrap"
        and any(map(is_user_code, one.frames))
    ]
    return found[0] if len(found) == 1 else None


def _issuing_ident(view: Rank, main: int) -> int:
    """The thread that issued the newest known op; 0 if not known, or if `main` issued any.

    Updates have only the last ops, perhaps those of another thread: a look has more.
    """
    if view.snapshot is None or not view.snapshot.ops:
        return 0
    newest_ns, found = -1, 0
    for op in chain(view.pending, view.last_ops, view.snapshot.ops):
        if op.pseudo or not op.thread:
            continue
        if op.thread == main:
            return 0
        if op.issued_ns > newest_ns:
            newest_ns, found = op.issued_ns, op.thread
    # In a fast group, neither the last op nor its thread is reported.
    return found if len(view.last_ops) == len(view.group_progress) else 0


def trains_beside(view: Rank) -> bool:
    """Whether a thread other than the main one works, or may."""
    main = view.main_stack
    others = (one for one in view.threads if one.frames and one is not main)
    return working_stack(view) is not main or any(_trains(one, view) for one in others)


def _trains(stack: wire.ThreadStack, view: Rank) -> bool:
    """Whether it is in training code, or waits for an op, which has no torch frame."""
    if stack.tid == view.identity.recorder_tid:
        return False
    seen = any(_TRAINING.search(frame.file) for frame in stack.frames)
    return seen or locate(stack, kernel_view(view, stack)).kind == "collective"


class ThreadChain(Struct, frozen=True):
    """A chain of threads, the working one first: each waits for the next.

    `end` waits for no other thread; None if not known. In a deadlock it is the one in `links` that
    the last of them waits for.
    """

    links: tuple[wire.ThreadStack, ...]
    end: wire.ThreadStack | None = None
    is_deadlock: bool = False

    @property
    def waits(self) -> tuple[wire.ThreadWait, ...]:
        """What each of `links` waits for."""
        return tuple(one.wait for one in self.links if one.wait is not None)


def thread_chain(view: Rank) -> ThreadChain | None:
    """The chain from the working thread; None if it waits for no other thread."""
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
    """The threads that the working one may wait for: a single one if that is known."""
    chain, mine = thread_chain(view), working_stack(view)
    if chain is not None and chain.end is not None:
        return () if chain.is_deadlock else (chain.end,)
    ours = view.identity.recorder_tid
    return tuple(one for one in view.threads if one is not mine and one.frames and one.tid != ours)


def acting_stack(view: Rank) -> wire.ThreadStack | None:
    """The stack of the thread at the end of the chain; without a chain, of the working thread."""
    chain = thread_chain(view)
    if chain is not None and chain.end is not None and not chain.is_deadlock:
        return chain.end
    return working_stack(view)


def acting_process(view: Rank) -> wire.Process | None:
    """The kernel's view of that thread; None if not known."""
    stack = acting_stack(view)
    if stack is None or stack is working_stack(view):
        return working_process(view)
    return kernel_view(view, stack)


def by_acting_thread(view: Rank, process: wire.Process) -> wire.Process:
    """The rank's process, with the state and system call of that thread."""
    task = acting_process(view)
    if task is None or task is view.process:
        return process
    return replace(
        process, state=task.state, wchan=task.wchan, syscall=task.syscall, file=task.file
    )


def program_threads(view: Rank) -> tuple[wire.ThreadStack, ...]:
    """The other threads in program code."""
    return tuple(one for one in awaited_threads(view) if any(map(is_user_code, one.frames)))
