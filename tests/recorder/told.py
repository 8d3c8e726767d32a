"""Ranks that do what they are told, line by line, and can be asked while they hang."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from frtop_probe.recorder.responder import HEAD
from frtop_probe.ring import contact
from frtop_probe.ring.layout import Cell
from frtop_probe.ring.reader import Ring
from recorder.world import DEADLINE_S, environment, free_port

PROGRAM = """
import ctypes, json, os, sys, threading, time
import torch, torch.distributed as dist
backend, world = sys.argv[1], int(os.environ["WORLD_SIZE"])
if backend == "fake":
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
else:
    dist.init_process_group(backend)
from frtop_probe.recorder.life import life
rank = dist.get_rank()
kept = {}
print("ready", flush=True)
for line in sys.stdin:
    exec(json.loads(line), globals())
    print("done", flush=True)
"""


class Told:
    """One rank of `PROGRAM`; in it are `torch`, `dist`, `rank`, `life`, and a dict `kept`."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.pid = process.pid
        self.folder = folder
        self.expect("ready")
        (path,) = folder.glob(f"{self.pid}-*.ring")
        self.ring = Ring(path)

    @property
    def door(self) -> Path:
        return contact.socket_of(self.ring.path)

    def expect(self, word: str) -> None:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], DEADLINE_S)[0]:
            raise TimeoutError(word)
        said = self.process.stdout.readline().strip()
        assert said == word, said

    def begin(self, program: str) -> None:
        """Tells it to do something and does not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(program) + "\n")
        self.process.stdin.flush()

    def do(self, program: str) -> None:
        self.begin(program)
        self.expect("done")

    def newest(self) -> int:
        """Sequence number of what was issued last."""
        return self.ring.cell(Cell.HEAD)

    def ask(self, **request: Any) -> tuple[dict[str, Any], bytes]:
        with self.connection() as asker:
            asker.sendall(json.dumps(request).encode() + b"\n")
            header, data = HEAD.unpack(_exactly(asker, HEAD.size))
            return json.loads(_exactly(asker, header)), _exactly(asker, data)

    def tensors(self, sequence: int = 0) -> dict[int, tuple[list[Mapping[str, Any]], str]]:
        """Summaries and remark by sequence number."""
        header, data = self.ask(ask="tensors", sequence=sequence)
        assert data == b""
        return {
            number: ([dict(zip(FIELDS, summary, strict=True)) for summary in told], remark)
            for number, told, remark in header["ops"]
        }

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as asker, contact.address(self.door) as place:
            asker.settimeout(DEADLINE_S)
            asker.connect(place)
            yield asker

    def beats(self, count: int = 2) -> float:
        """Waits for so many beats and says how long that took."""
        first, begin = self.ring.cell(Cell.BEATS), time.monotonic()
        until(lambda: self.ring.cell(Cell.BEATS) >= first + count, "beats")
        return time.monotonic() - begin

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        self.ring.close()


FIELDS = (
    "role", "dtype", "shape", "device", "size", "elements", "seen", "minimum", "maximum", "mean",
    "norm", "nans", "infinities", "first", "checksum", "error",
)  # fmt: skip


@contextmanager
def told(
    folder: Path, ranks: int, backend: str = "gloo", *, threads: int = 1
) -> Iterator[list[Told]]:
    """That many ranks, killed at the end."""
    base = environment(folder, prepared=True, OMP_NUM_THREADS=str(threads))
    base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, backend],
            env=base | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    started: list[Told] = []
    try:
        for process in processes:
            started.append(Told(process, folder))  # noqa: PERF401 - each may fail
        yield started
    finally:
        for one in started:
            one.end()
        for process in processes[len(started) :]:
            process.kill()
            process.communicate()


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)


def sockets(pid: int) -> set[str]:
    """The sockets a process has open, as `/proc` names them."""
    links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]  # noqa: PTH115
    return {link for link in links if link.startswith("socket:")}


def _exactly(asker: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = asker.recv(size - len(found))
        if not piece:
            raise EOFError(f"{len(found)} of {size} bytes")
        found += piece
    return found
