"""Whether a rank is idle: its working thread waits at a queue for what another thread receives.

Inference servers are built this way. By its working thread alone such a rank waits for a lock.
"""

from __future__ import annotations

import re
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.rpc_call import is_handler
from frtop_tui.diagnosis.evidence.stack_location import QUEUE_GET, function_name, locate
from frtop_tui.diagnosis.evidence.working_thread import kernel_view, working_stack
from frtop_tui.job.model import Rank

_QUEUES: Final = re.compile(r"/(queue|multiprocessing/queues|asyncio/queues)\.py$")
_QUEUE_FRAMES: Final = 3
"""`get` of a queue is at most two calls (a condition's `wait`) further out than the leaf."""
_WORKING: Final = frozenset(
    ["backward", "collective", "compiling", "dataloader", "device", "file_io", "file_lock"]
)
"""The working thread may wait for one at such a place: the rank then is not known to be idle."""


def awaits_work(view: Rank) -> bool:
    """Whether the working thread waits at a queue, another thread serves, and none works."""
    working = working_stack(view)
    if working is None or is_handler(working) or not _is_at_queue(working):
        return False
    kinds = {
        locate(thread, kernel_view(view, thread)).kind
        for thread in view.threads
        if thread.frames and thread is not working and thread.tid != view.identity.recorder_tid
    }
    return "idle" in kinds and kinds.isdisjoint(_WORKING)


def _is_at_queue(stack: wire.ThreadStack) -> bool:
    """Whether a thread waits for the next item of a queue, in Python or in C."""
    for frame in stack.frames[:_QUEUE_FRAMES]:
        if _QUEUES.search(frame.file):
            return function_name(frame) == "get"
    return bool(stack.frames and QUEUE_GET.search(stack.frames[0].source))
