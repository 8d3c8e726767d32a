"""An idle server: rank 0 waits for requests, the others wait for rank 0."""

import socket
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, Case, Job, join, truth

CASE = Case(lasts_s=45, allowed=(truth("not_entered", 0, "idle", progress="unknown"),))


def ask(job: Job, path: Path) -> None:
    """Sends twenty requests, and then none for a long time."""
    for number in range(20):
        time.sleep(STEP_S)
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            line.sendall(bytes([number]) * 10)
    job.mark_fault()


job = join()
path = job.folder / "requests"
prompt = torch.zeros(10)
if job.rank == 0:
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(path))
    door.listen()
    threading.Thread(target=ask, args=(job, path), daemon=True).start()
while True:
    if job.rank == 0:
        line, _ = door.accept()
        with line:
            prompt = torch.tensor(list(line.recv(10)), dtype=torch.float32)
    job.call(dist.broadcast, prompt, 0)
    job.all_reduce(prompt)
