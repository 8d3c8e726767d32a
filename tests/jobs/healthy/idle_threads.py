"""Threads without work: one at a queue, many of an executor. MainThread trains, with pauses."""

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

from zoo.ground_truth import Case
from zoo.rank import STEP_S, join

CASE = Case(lasts_s=45)
WORKERS = 24

uploads: "queue.Queue[float]" = queue.Queue()


def upload() -> None:
    while True:
        uploads.get()


def main() -> None:
    job = join()
    threading.Thread(target=upload, name="uploader", daemon=True).start()
    executor = ThreadPoolExecutor(WORKERS)
    barrier = threading.Barrier(WORKERS)
    for one in [executor.submit(barrier.wait) for _ in range(WORKERS)]:
        one.result()
    gradient = torch.ones(1000)
    for step in range(10_000):
        time.sleep(3.5 if step % 200 == 100 else STEP_S)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
