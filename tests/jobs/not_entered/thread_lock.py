"""Rank 3 waits for a lock that another of its threads never releases."""

import threading
import time

import torch

from zoo.rank import fault, join

CASE = fault("not_entered", 3, "lock")

statistics = threading.Lock()


def report(never: threading.Event) -> None:
    with statistics:
        never.wait()


job = join()
gradient = torch.ones(1000)
for odd in job.steps(3):
    if odd:
        threading.Thread(target=report, args=(threading.Event(),), daemon=True).start()
        while not statistics.locked():
            time.sleep(0.001)
    with statistics:
        gradient /= 2
    job.all_reduce(gradient)
