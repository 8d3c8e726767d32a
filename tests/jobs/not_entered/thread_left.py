"""Rank 1 returns early, and a thread that is no daemon keeps its process."""

import threading
import time

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "lock", says=("its program has finished", "logger", "(log)"))


def log() -> None:
    while True:
        time.sleep(1)


job = join()
for odd in job.steps(1):
    if odd:
        threading.Thread(target=log, name="logger").start()
        break
    job.all_reduce()
