"""MainThread runs an event loop, another thread trains: in rank 2 it waits for another process."""

import asyncio
import socket
import subprocess
import sys
import threading

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from zoo.rank import Job, fault, join

CASE = fault("not_entered", 2, "socket", says='thread "trainer"')


ANSWERS = """
import socket, sys, time
link = socket.socket(fileno=int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    link.sendall(link.recv(1))
time.sleep(600)
"""
"""An actor: it answers some requests, and then no more."""


def train(job: Job, link: socket.socket, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in job.steps(2):
        link.sendall(b"1")
        loss = model(torch.full((10, 100), float(link.recv(1)))).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


job = join()
mine, other = socket.socketpair()
answers = 40 if job.rank == 2 else 1000
command = [sys.executable, "-c", ANSWERS, str(other.fileno()), str(answers)]
subprocess.Popen(command, pass_fds=[other.fileno()])
model = DistributedDataParallel(nn.Linear(100, 100))
arguments = (job, mine, model)
threading.Thread(target=train, args=arguments, name="trainer", daemon=True).start()
asyncio.new_event_loop().run_forever()
