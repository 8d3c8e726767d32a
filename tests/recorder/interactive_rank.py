"""Ranks that run code sent by a test, line by line, and respond to requests while they hang."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from free_port import free_port
from frtop_probe import wire
from frtop_probe.recorder.requests.responder import HEAD
from frtop_probe.ring import beside
from frtop_probe.ring.layout import StatusCell
from frtop_probe.ring.reader import Ring
from recorder.rank_runner import DEADLINE_S, end, environment, start
from waiting import wait_for

PROGRAM = """
import ctypes, fcntl, json, os, sys, threading, time
# Gloo of torch 2.8 prints to stdout; a test closes the descriptors from 3 to 63.
told = os.fdopen(fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 200), "w", buffering=1)
os.dup2(2, 1)
import torch, torch.distributed as dist
backend, world = sys.argv[1], int(os.environ["WORLD_SIZE"])
if backend == "fake":
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
else:
    dist.init_process_group(backend)
from frtop_probe.recorder.process.lifecycle import lifecycle
rank = dist.get_rank()
saved = {}
def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
print("ready", file=told)
for line in sys.stdin:
    exec(json.loads(line), globals())
    print("done", file=told)
"""


class InteractiveRank:
    """A rank that runs `PROGRAM`.

    Code sent to it may use `torch`, `dist`, `rank`, `lifecycle`, `wait_for` and a dict `saved`.
    """

    def __init__(self, file: Path, folder: Path, backend: str, environ: Mapping[str, str]) -> None:
        stdin, ours = os.pipe()
        theirs, stdout = os.pipe()
        self._stdin, self._stdout = os.fdopen(ours, "w"), os.fdopen(theirs)
        try:
            self.process = start(file, [backend], environ, stdin=stdin, stdout=stdout, stderr=2)
        finally:
            os.close(stdin)
            os.close(stdout)
        self.pid = self.process.pid
        self.folder = folder
        self._ring: Ring | None = None

    def ready(self) -> None:
        self.expect("ready")
        (path,) = self.folder.glob(f"{self.pid}-*.ring")
        self._ring = Ring(path)

    @property
    def ring(self) -> Ring:
        assert self._ring is not None
        return self._ring

    @property
    def socket_path(self) -> Path:
        return beside.socket_of(self.ring.path)

    def expect(self, word: str) -> None:
        if not select.select([self._stdout], [], [], DEADLINE_S)[0]:
            raise TimeoutError(word)
        line = self._stdout.readline().strip()
        assert line == word, line

    def start(self, code: str) -> None:
        """Sends code and does not wait for it."""
        self._stdin.write(json.dumps(code) + "\n")
        self._stdin.flush()

    def run(self, code: str) -> None:
        self.start(code)
        self.expect("done")

    def newest(self) -> int:
        """Returns the sequence number of the newest event."""
        return self.ring.cell(StatusCell.HEAD)

    def request(self, **request: Any) -> tuple[dict[str, Any], bytes]:
        with self.connection() as client:
            client.sendall(json.dumps(request).encode() + b"\n")
            header, data = HEAD.unpack(_receive(client, HEAD.size))
            return json.loads(_receive(client, header)), _receive(client, data)

    def tensors(
        self, sequence: int = 0, *, devices: bool = True
    ) -> dict[int, tuple[list[Mapping[str, Any]], str]]:
        """Returns summaries and remark by sequence number."""
        header, data = self.request(ask="SummarizeTensors", sequence=sequence, devices=devices)
        assert data == b""
        return {
            op["sequence"]: (
                [asdict(wire.TensorSummary(**summary)) for summary in op.get("tensors", ())],
                op.get("error", ""),
            )
            for op in header["ops"]
        }

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as client, beside.address(self.socket_path) as address:
            client.settimeout(DEADLINE_S)
            client.connect(address)
            yield client

    def wait_for_heartbeats(self, count: int = 2) -> float:
        """Waits for this many heartbeats; returns how many seconds that took."""
        first, begin = self.ring.cell(StatusCell.HEARTBEATS), time.monotonic()
        wait_for(
            lambda: self.ring.cell(StatusCell.HEARTBEATS) >= first + count, "beats", DEADLINE_S
        )
        return time.monotonic() - begin

    def kill(self) -> None:
        end(self.process)
        with suppress(BrokenPipeError):  # of code that it never read
            self._stdin.close()
        self._stdout.close()
        if self._ring is not None:
            self._ring.close()


@contextmanager
def interactive_ranks(
    folder: Path, ranks: int, backend: str = "gloo", *, threads: int = 1, **more: str
) -> Iterator[list[InteractiveRank]]:
    """Starts ranks, and kills them at the end."""
    base = environment(folder, prepared=True, OMP_NUM_THREADS=str(threads), **more)
    base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    file = folder.parent / "interactive.py"
    file.write_text(PROGRAM)  # once: a rank that starts would read a file that is half written
    with ExitStack() as stack:
        started = []
        for rank in range(ranks):
            environ = base | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            started.append(InteractiveRank(file, folder, backend, environ))
            stack.callback(started[-1].kill)
        for one in started:
            one.ready()
        yield started


def open_sockets(pid: int) -> set[str]:
    """Returns the open sockets of a process, as `/proc` names them."""
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names suffice
        with suppress(FileNotFoundError):  # closed since it was listed
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))  # noqa: PTH115
    return {link for link in links if link.startswith("socket:")}


def _receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        if not piece:
            raise EOFError(f"{len(data)} of {size} bytes")
        data += piece
    return data


Ranks = tuple[InteractiveRank, ...]


def run(ranks: Ranks, program: str) -> None:
    for rank in ranks:
        rank.start(program)
    for rank in ranks:
        rank.expect("done")


def notes(rank: InteractiveRank) -> list[str]:
    rank.ring.refresh()
    return list(rank.ring.notes.values())
