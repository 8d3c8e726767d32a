"""Rank 3 puts into a full queue: the thread that empties it waits for a server."""

import queue
import socket
import threading
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("not_entered",), culprits=(3,), causes=("socket",), says=('thread "uploader"',)),)
)


def upload(items: "queue.Queue[float]", link: socket.socket, *, odd: bool) -> None:
    sent = 0
    while True:
        items.get()
        sent += 1
        if odd and sent == 40:
            link.recv(1)  # an answer that does not come


def main() -> None:
    job = join()
    items: queue.Queue[float] = queue.Queue(2)
    mine, other = socket.socketpair()
    upload_its = threading.Thread(
        target=upload, args=(items, mine), kwargs={"odd": job.rank == 3}, name="uploader",
        daemon=True,
    )  # fmt: skip
    upload_its.start()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 41 and job.rank == 3:
            job.mark_fault()
        items.put(float(step))
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()
    other.close()


if __name__ == "__main__":
    main()
