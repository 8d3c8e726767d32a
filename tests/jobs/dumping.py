"""A gloo job of three ranks, dumped while rank 1 does not enter an op: `dumping.py FOLDER`."""

import os
import pickle  # noqa: TID251 - what this very process has written
import socket
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

LAST = 5  # after three all_reduces and a barrier

folder = Path(sys.argv[1])
rank = int(os.environ["RANK"])
dist.init_process_group(
    "gloo",
    init_method=f"file://{folder}/store",
    rank=rank,
    world_size=3,
    timeout=timedelta(seconds=300),
)
pair = dist.new_group([0, 2])
tensor = torch.ones(8)


def wait_for_all(name: str) -> None:
    """Writes a file, and waits for the files of the others."""
    (folder / f"{name}.{rank}").touch()
    while len(list(folder.glob(f"{name}.*"))) < 3:
        time.sleep(0.05)


def is_there() -> bool:
    """Returns whether this rank is in the op that rank 1 never enters, after all earlier ops."""
    entries = pickle.loads(c10d._dump_fr_trace(True, False, False)).get("entries", ())
    last = [
        entry
        for entry in entries
        if entry["process_group"][1] == "default_pg" and entry["collective_seq_id"] == LAST
    ]
    through = all(entry["retired"] for entry in entries if entry not in last)
    return through and len(last) == (rank != 1)


def answered() -> bytes:
    """Returns the response of torch's own server about this rank's Flight Recorder."""
    address = str(folder / f"{rank}.sock")
    server = c10d._WorkerServer(address)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        line.sendall(b"POST /handler/fr_trace_json HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    server.shutdown()
    return answer.partition(b"\r\n\r\n")[2]


def dump() -> None:
    """Writes what torch writes at a timeout, and ends this rank."""
    wait_for_all("waiting")
    while not is_there():
        time.sleep(0.05)
    (folder / f"nccl_trace_rank_{rank}").write_bytes(c10d._dump_fr_trace(True, True, False))
    text = c10d._dump_fr_trace_json(True, False)
    (folder / f"comm_lib_trace_rank_{rank}.json").write_bytes(text)
    (folder / f"fr_trace_json.rank{rank}").write_bytes(answered())
    wait_for_all("dumped")
    os._exit(0)


for _ in range(3):
    dist.all_reduce(tensor)
if rank != 1:
    dist.broadcast(tensor, 0, group=pair)
if rank == 0:
    dist.send(tensor, 1)
elif rank == 1:
    dist.recv(tensor, 0)
dist.barrier()
threading.Thread(target=dump, daemon=True).start()
if rank != 1:
    with suppress(RuntimeError):  # another rank has ended
        dist.all_reduce(tensor)
time.sleep(300)
