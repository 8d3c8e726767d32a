"""Rank 3 waits for a lock that another of its threads never releases."""

import threading
import time

import torch

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault("not_entered", 3, "lock")

statistics = threading.Lock()


def report(never: threading.Event) -> None:
    with statistics:
        never.wait()


job = join()
gradient = torch.ones(1000)
for step in range(100):
    time.sleep(STEP_S)
    if step == 40 and job.rank == 3:
        threading.Thread(target=report, args=(threading.Event(),), daemon=True).start()
        while not statistics.locked():
            time.sleep(0.001)
        job.mark_fault()
    with statistics:
        gradient /= 2
    job.all_reduce(gradient)
