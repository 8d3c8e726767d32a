"""Whether a rank's program is over, and which threads its process still waits for.

After a program has ended, Python joins non-daemon threads and calls the exit handlers. Both run in
the main thread, so its stack shows them.
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
    "threads",  # joins non-daemon threads
    "exit",  # in an exit handler
]
_EXITS: Final = re.compile(r"/(multiprocess(?:ing)?/util|concurrent/futures/(thread|process))\.py$")
_EXIT_FUNCTIONS: Final = frozenset({"_exit_function", "_python_exit"})
_PROGRAM: Final = "<module>"
"""The outermost frame of a main thread while its program runs."""
_MOST_THREADS: Final = 3


class AwaitedThread(Struct, frozen=True):
    """A thread that the process may wait for, and where it is."""

    name: str
    location: StackLocation


class ProgramEnd(Struct, frozen=True):
    """How far a program has ended; its exit may wait for any of `threads`."""

    stage: EndStage
    sure: bool = True  # False: only a missing frame shows it
    threads: tuple[AwaitedThread, ...] = ()


def others_have_ended(view: Rank) -> bool:
    """Whether its launcher shows that other ranks, perhaps never seen, have ended."""
    return wire.OTHERS_ENDED in view.notes


def program_end(view: Rank, *, others_left: bool = False) -> ProgramEnd | None:
    """How far the program has ended; None if nothing shows that it has.

    An exit handler has no frame of the program outside of it, but neither has a callback from C:
    that counts only if the other ranks have left.
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
    """Its other threads in the program; stacks do not show which of them are daemons."""
    others = program_threads(view)[:_MOST_THREADS]
    return tuple(
        AwaitedThread(name_of(view, one), locate(one, kernel_view(view, one))) for one in others
    )
