"""Whether a rank has nothing to do: it waits at a queue for work that another thread takes in.

Engines of servers are built so. In the main thread alone that looks like any lock.
"""

from __future__ import annotations

import re
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.evidence import stack_location as places
from frtop_tui.job.model import Rank

_QUEUES: Final = re.compile(r"/(queue|multiprocessing/queues|asyncio/queues)\.py$")
_AT_WORK: Final = frozenset(
    ["backward", "collective", "compiling", "dataloader", "device", "file_io", "file_lock"]
)
"""What a thread may do that the main thread waits for: then nobody knows what is missing."""


def awaits_work(view: Rank) -> bool:
    """Whether the main thread waits at a queue, a thread serves, and none is at work."""
    main = view.main_stack
    if main is None or not _at_queue(main):
        return False
    kinds = {
        places.classify(thread).kind
        for thread in view.threads
        if thread.frames and thread is not main and thread.tid != view.identity.recorder_tid
    }
    return "idle" in kinds and kinds.isdisjoint(_AT_WORK)


def _at_queue(stack: wire.ThreadStack) -> bool:
    """Whether a thread waits for the next thing out of a queue, Python's or one in C."""
    for frame in stack.frames[:3]:
        if _QUEUES.search(frame.file):
            return places.bare_name(frame) == "get"
    return bool(stack.frames and places.GETS.search(stack.frames[0].source))
