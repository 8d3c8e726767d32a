"""An idle HTTP server in MainThread of rank 0; the others wait in an op for what it sends them."""

import http.client
import http.server
import threading
import time

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, Case, Job, join, truth

CASE = Case(
    modes=("sync",),
    lasts_s=45,
    allowed=(truth("not_entered", 0, "idle", progress=("unknown", "active")),),
)

prompt = torch.zeros(10)


class Door(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        dist.broadcast(prompt, 0)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def ask(job: Job, port: int) -> None:
    for _ in range(20):
        time.sleep(STEP_S)
        line = http.client.HTTPConnection("127.0.0.1", port)
        line.request("GET", "/")
        line.getresponse().read()
        line.close()
    job.mark_fault()


job = join()
if job.rank == 0:
    server = http.server.HTTPServer(("127.0.0.1", 0), Door)
    threading.Thread(target=ask, args=(job, server.server_port), daemon=True).start()
    server.serve_forever()
while True:
    dist.broadcast(prompt, 0)
