"""Threads without work: one at a queue, many of an executor. MainThread trains, with pauses."""

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from zoo.rank import STEP_S, Case, join

CASE = Case(lasts_s=45)
WORKERS = 24

uploads: "queue.Queue[float]" = queue.Queue()


def upload() -> None:
    while True:
        uploads.get()


job = join()
threading.Thread(target=upload, name="uploader", daemon=True).start()
executor = ThreadPoolExecutor(WORKERS)
barrier = threading.Barrier(WORKERS)
for one in [executor.submit(barrier.wait) for _ in range(WORKERS)]:
    one.result()
for step in range(10_000):
    time.sleep(3.5 if step % 200 == 100 else STEP_S)
    job.all_reduce()
