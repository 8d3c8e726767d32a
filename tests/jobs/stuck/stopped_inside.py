"""Rank 2 enters the all_reduce first, and is stopped there by SIGSTOP."""

import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from zoo.rank import STEP_S, Job, fault, join

CASE = fault("stuck", 2, "stopped", says="kill -CONT")


def stop(job: Job) -> None:
    """Stops the process once its main thread is in the op; the others enter after that."""
    within = "wait" if job.late else "all_reduce"
    while within not in calls_of(threading.main_thread()):
        time.sleep(0.01)
    time.sleep(0.5)
    (job.folder / "process").symlink_to(f"/proc/{os.getpid()}")
    job.mark_fault()
    os.kill(os.getpid(), signal.SIGSTOP)


def calls_of(thread: threading.Thread) -> set[str]:
    frame = sys._current_frames()[thread.ident or 0]
    return {call.name for call in traceback.extract_stack(frame)}


def is_stopped(process: Path) -> bool:
    """Returns whether rank 2 is stopped; False before it starts."""
    return process.exists() and "State:\tT" in (process / "status").read_text()


job = join()
for step in range(100):
    time.sleep(STEP_S)
    if step == 40 and job.rank == 2:
        threading.Thread(target=stop, args=(job,)).start()
    elif step == 40:
        while not is_stopped(job.folder / "process"):
            time.sleep(0.01)
    job.all_reduce()
