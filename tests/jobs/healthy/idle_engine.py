"""An idle server: its threads accept requests, and rank 0's engine waits for a queue."""

import http.client
import http.server
import queue
import threading
import time

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, Case, Job, join, truth

# In one run of ten frtop called it active, soon after the last request.
CASE = Case(lasts_s=45, allowed=(truth("not_entered", 0, "idle", progress=("unknown", "active")),))

requests: queue.Queue[bytes] = queue.Queue()


class Door(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        requests.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(202)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def ask(job: Job, port: int) -> None:
    """Sends twenty requests, and then none for a long time."""
    for number in range(20):
        time.sleep(STEP_S)
        line = http.client.HTTPConnection("127.0.0.1", port)
        line.request("POST", "/", bytes([number]) * 10)
        line.getresponse().read()
        line.close()
    job.mark_fault()


job = join()
prompt = torch.zeros(10)
if job.rank == 0:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=ask, args=(job, server.server_port), daemon=True).start()
while True:
    if job.rank == 0:
        prompt = torch.tensor(list(requests.get()), dtype=torch.float32)
    job.call(dist.broadcast, prompt, 0)
    job.all_reduce(prompt)
