"""Whether a rank's program is over, and which threads its process still waits for.

When a program has ended, Python joins the threads that are no daemons, then calls what was
registered for the exit. All of it runs in the main thread, so its stack tells.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.c10d_call import call_of
from frtop_tui.diagnosis.evidence.rank_activity import last_activity_ns
from frtop_tui.diagnosis.evidence.stack_location import StackLocation, function_name, locate
from frtop_tui.diagnosis.evidence.working_thread import (
    kernel_view,
    name_of,
    program_threads,
    thread_chain,
)
from frtop_tui.job.model import Rank

EndStage = Literal[
    "groups",  # in `destroy_process_group`
    "threads",  # joins threads that are no daemons
    "exit",  # in a function that was registered for the exit
]
_EXITS: Final = re.compile(r"/(multiprocessing/util|concurrent/futures/(thread|process))\.py$")
_EXIT_FUNCTIONS: Final = frozenset({"_exit_function", "_python_exit"})
_PROGRAM: Final = "<module>"
"""The outermost frame of a main thread while its program runs."""
_MOST_THREADS: Final = 3


class AwaitedThread(Struct, frozen=True):
    """A thread that the process may wait for, and where it is."""

    name: str
    location: StackLocation


class ProgramEnd(Struct, frozen=True):
    """How far a program has ended; `threads`: one of which it may wait for, where none is known."""

    stage: EndStage
    sure: bool = True  # not only by what is missing in its stack
    threads: tuple[AwaitedThread, ...] = ()


def others_have_ended(view: Rank) -> bool:
    """Whether its launcher tells that other ranks have ended, which may never have been seen."""
    return wire.OTHERS_ENDED in view.notes


def program_end(view: Rank, *, others_left: bool = False) -> ProgramEnd | None:
    """How far the program has ended; None if it is not seen to have.

    A function that was registered for the exit has nothing of the program outside of it; but so
    has one that was called from C. It counts only where the other ranks have left.
    """
    main = view.main_stack
    if main is None or not main.frames or view.stacks_taken_ns < last_activity_ns(view):
        return None
    call = call_of(main)
    if call is not None and call.is_teardown:
        return ProgramEnd("groups")
    chain = thread_chain(view)
    known = chain is not None and chain.end is not None
    threads = () if known or locate(main, view.process).kind != "lock" else _others(view)
    if any(
        function_name(frame) == "_shutdown" and frame.file.endswith("/threading.py")
        for frame in main.frames
    ):
        return ProgramEnd("threads", threads=threads)
    sure = any(
        function_name(frame) in _EXIT_FUNCTIONS and _EXITS.search(frame.file)
        for frame in main.frames
    )
    others_left = others_left or others_have_ended(view)
    if sure or (others_left and main.frames[-1].function != _PROGRAM):
        return ProgramEnd("exit", sure, threads)
    return None


def _others(view: Rank) -> tuple[AwaitedThread, ...]:
    """Its other threads in the program. Which of them are daemons their stacks do not tell."""
    others = program_threads(view)[:_MOST_THREADS]
    return tuple(
        AwaitedThread(name_of(view, one), locate(one, kernel_view(view, one))) for one in others
    )
