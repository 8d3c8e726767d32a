"""Rank 1 waits for a lock, and the thread that holds it for a server."""

import socket
import threading
import time

import torch

from zoo.rank import STEP_S, Job, fault, join

CASE = fault("not_entered", 1, "socket", says='a lock that thread "refresher" holds')


class Cache:
    def __init__(self, link: socket.socket) -> None:
        self.lock = threading.RLock()
        self.link = link
        self.scale = 1.0

    def refresh(self) -> None:
        with self.lock:
            self.scale = float(self.link.recv(10))

    def get(self) -> float:
        with self.lock:
            return self.scale


def start(job: Job, cache: Cache) -> None:
    thread = threading.Thread(target=cache.refresh, name="refresher", daemon=True)
    thread.start()
    time.sleep(0.2)  # until it has the lock
    job.mark_fault()


job = join()
mine, other = socket.socketpair()
cache = Cache(mine)
gradient = torch.ones(1000)
for step in range(100):
    time.sleep(STEP_S)
    if step == 40 and job.rank == 1:
        start(job, cache)
    gradient *= cache.get()
    job.all_reduce(gradient)
other.close()
