"""Rank 3 puts into a full queue: the thread that empties it waits for a server."""

import queue
import socket
import threading

from zoo.rank import fault, join

CASE = fault("not_entered", 3, "socket", says='thread "uploader"')


def upload(items: "queue.Queue[float]", link: socket.socket, *, odd: bool) -> None:
    sent = 0
    while True:
        items.get()
        sent += 1
        if odd and sent == 40:
            link.recv(1)  # an answer that does not come


job = join()
items: queue.Queue[float] = queue.Queue(2)
mine, other = socket.socketpair()
upload_its = threading.Thread(
    target=upload, args=(items, mine), kwargs={"odd": job.rank == 3}, name="uploader",
    daemon=True,
)  # fmt: skip
upload_its.start()
for step, _ in enumerate(job.steps(3, at=41)):
    items.put(float(step))
    job.all_reduce()
other.close()
