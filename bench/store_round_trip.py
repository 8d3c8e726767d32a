"""The round trip to the job's store in `init_process_group`, with all ranks of a job at one key.

The ranks ask at the same time, right after torch's own barrier over the same store has let them go.
A real TCPStore serves as many real connections as one machine holds. The cost of a request on the
server's single thread shows how long a larger job would wait. The barrier is timed as well.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

PROCESSES: Final = 2
CONNECTIONS: Final = (64, 256, 1024)
ROUNDS: Final = 4
LARGE: Final = 16_384
_KEY: Final = "frtop/nonce"


def main() -> None:
    """Prints the server's CPU time per request, and how long ranks wait for theirs."""
    print("round trip to the store in init_process_group: a TCPStore, real connections")
    print(f"{'ranks':>6}  {'request':<16}{'server, us each':>16}{'median wait':>13}{'longest':>9}")
    each = 0.0
    for ranks in CONNECTIONS:
        with _Job(ranks) as job:
            for name in ("nonce", "barrier"):
                rounds = [job.round(name) for _ in range(ROUNDS)]
                cpu, median, longest = (statistics.median(c) for c in zip(*rounds, strict=True))
                print(f"{ranks:>6}  {_NAMES[name]:<16}{1e6 * cpu:>16.1f}"
                      f"{1e3 * median:>10.1f} ms{1e3 * longest:>6.0f} ms", flush=True)  # fmt: skip
                each = cpu if name == "nonce" else each
    print(f"{LARGE:>6}  ours, by the server's time: at most {LARGE * each:.2f} s for the last rank")


_NAMES: Final = {"nonce": "ours", "barrier": "torch's barrier"}


class _Job:
    """A server, and processes with connections, each of which asks from a thread of its own."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._server = _start("server")
        self._port = _line(self._server)
        share = ranks // PROCESSES
        self._clients = [_start("clients", self._port, str(share)) for _ in range(PROCESSES)]
        for client in self._clients:
            _line(client)
        self._round = 0

    def __enter__(self) -> _Job:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._clients, self._server):
            process.kill()
            process.communicate()

    def round(self, name: str) -> tuple[float, float, float]:
        """CPU time of the server per rank, median and longest wait of a rank, in seconds."""
        self._round += 1
        before = float(_line(self._server, "cpu"))
        for client in self._clients:
            _say(client, f"{name} {self._round} {self.ranks}")
        waits = sorted(float(w) for client in self._clients for w in _line(client).split())
        cpu = float(_line(self._server, "cpu")) - before
        return cpu / self.ranks, statistics.median(waits), waits[-1]


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.store_round_trip", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str], question: str = "") -> str:
    assert process.stdout is not None
    if question:
        _say(process, question)
    return process.stdout.readline().strip()


def _store(port: int, *, server: bool) -> Any:
    from torch._C._distributed_c10d import TCPStore  # noqa: PLC0415 - only in the children

    timeout = timedelta(seconds=300)
    return TCPStore("127.0.0.1", port, None, server, timeout, wait_for_workers=False)


def _serve() -> None:
    store = _store(0, server=True)
    print(store.port, flush=True)
    for _ in sys.stdin:
        print(time.process_time(), flush=True)


def _ask(port: int, connections: int) -> None:
    threading.stack_size(256 * 1024)
    stores = [_store(port, server=False) for _ in range(connections)]
    print("ready", flush=True)
    for line in sys.stdin:
        name, number, ranks = line.split()
        asks = _Asks({"nonce": _nonce, "barrier": _barrier}[name], number, int(ranks))
        threads = [threading.Thread(target=asks.ask, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        asks.go.set()
        for thread in threads:
            thread.join()
        print(*asks.waits, flush=True)


class _Asks:
    """One round: what each thread asks at the same time, and how long it waited."""

    def __init__(self, request: Callable[[Any, str, int], None], number: str, ranks: int) -> None:
        self._request = request
        self._arguments = number, ranks
        self.go = threading.Event()
        self.waits: list[float] = []

    def ask(self, store: Any) -> None:
        self.go.wait()
        begin = time.perf_counter()
        self._request(store, *self._arguments)
        self.waits.append(time.perf_counter() - begin)


def _nonce(store: Any, number: str, _: int) -> None:
    store.compare_set(f"{_KEY}{number}", "", "0123456789abcdef")


def _barrier(store: Any, number: str, ranks: int) -> None:
    """Like torch's `_store_based_barrier`: one counter, and a key that the last rank sets."""
    if store.add(f"barrier{number}", 1) == ranks:
        store.set(f"barrier{number}:last", "1")
    store.wait([f"barrier{number}:last"])


if __name__ == "__main__":
    if sys.argv[1] == "server":
        _serve()
    else:
        _ask(int(sys.argv[2]), int(sys.argv[3]))
