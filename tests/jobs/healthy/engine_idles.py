"""An engine without a request: rank 0 waits for one, the others for rank 0, in their transport."""

import queue
import socketserver
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, Case, Job, join, truth
from zoo.transport import Transport

# Nobody has seen it wait for a request before.
CASE = Case(lasts_s=60, allowed=(truth("undecided", progress="unknown"),))
REQUESTS = 150

requests: queue.Queue[int] = queue.Queue()


def ask(job: Job) -> None:
    """Sends some requests, and then none for a long time."""
    for number in range(REQUESTS):
        time.sleep(STEP_S)
        requests.put(number)
    job.mark_fault()


job = join()
cpu = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
transport = Transport(job)
if job.rank == 0:
    server = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=ask, args=(job,), daemon=True).start()
prompt = torch.zeros(10)
while True:
    if job.rank == 0:
        prompt[0] = requests.get()
        transport.send()
    else:
        transport.receive(0)
    job.call(dist.broadcast, prompt, 0, group=cpu)
    transport.replay()
