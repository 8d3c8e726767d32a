"""Rank 1 waits at an empty queue: an exception has ended the thread that fills it."""

import queue
import threading

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "lock", says='its thread "reader" ended')


def read(rows: "queue.Queue[int]", last: int) -> None:
    for row in range(1000):
        if row == last:
            raise ValueError("row 40 has no label")
        rows.put(row)


job = join()
rows: queue.Queue[int] = queue.Queue(1)
threading.Thread(
    target=read, args=(rows, 40 if job.rank == 1 else 1000), name="reader", daemon=True
).start()
for _ in job.steps(1):
    rows.get()
    job.all_reduce()
