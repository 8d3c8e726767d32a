"""A stand-in for RAS on a real TCP socket, made from the public description of its protocol.

It is no NCCL, and nothing of it was compared with one. Options say how it fails.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

SLOW_S = 30.0
TRICKLE_S = 0.3


class StandIn:
    """Serves until `close`; `commands` are all lines that came.

    Args of the constructor:
        answer: gives the answer to a status for "json" or "text".
        knows_json: false for NCCL before 2.28.7.
        fault: "", "slow", "cut", "garbage", "endless", "silent" (takes connections, and never
            speaks), "other" (another protocol), "trickle" (a few bytes at a time), "long line".
    """

    def __init__(
        self,
        answer: Callable[[str], bytes],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        knows_json: bool = True,
        fault: str = "",
    ) -> None:
        self._answer = answer
        self._knows_json = knows_json
        self.fault = fault
        self.commands: list[str] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((host, port))
        self._socket.listen(64)
        self.host, self.port = host, self._socket.getsockname()[1]
        self._closing = threading.Event()
        self._clients: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    @property
    def statuses(self) -> int:
        """How often a status was asked for."""
        return sum(line.upper().endswith("STATUS") for line in self.commands)

    def close(self) -> None:
        self._closing.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()
        for thread in self._threads:
            thread.join(timeout=5)

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self._clients.append(client)
            self._threads.append(threading.Thread(target=self._talk, args=(client,), daemon=True))
            self._threads[-1].start()

    def _talk(self, client: socket.socket) -> None:
        with suppress(OSError, ValueError), client.makefile("rwb") as stream:
            form = "text"
            for raw in stream:
                line = raw.decode().strip()
                self.commands.append(line)
                words = line.lower()
                if self.fault == "silent":
                    self._closing.wait(SLOW_S)
                    return
                if words.endswith("status"):
                    self._send(client, self._answer(form))
                    return
                if words.startswith("client protocol "):
                    reply = self._greeting()
                elif words.startswith("timeout ") or (
                    words.startswith("set format ") and self._knows_json
                ):
                    form = "json" if words.endswith("json") else form
                    reply = "OK"
                else:
                    reply = f"ERROR: Unknown command {line}"
                stream.write(reply.encode() + b"\n")
                stream.flush()

    def _greeting(self) -> str:
        if self.fault == "long line":
            return "SERVER PROTOCOL " + "2" * 100_000
        return "220 mail.example.org" if self.fault == "other" else "SERVER PROTOCOL 2"

    def _send(self, client: socket.socket, data: bytes) -> None:
        if self.fault == "slow":
            self._closing.wait(SLOW_S)
        elif self.fault == "cut":
            data = data[: len(data) // 2]
        elif self.fault == "garbage":
            data = bytes(range(256)) * 40
        elif self.fault == "endless":
            while not self._closing.is_set():
                client.sendall(b" " * (1 << 20))
        elif self.fault == "trickle":
            for at in range(0, len(data), 7):
                client.sendall(data[at : at + 7])
                time.sleep(TRICKLE_S)
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        client.close()
