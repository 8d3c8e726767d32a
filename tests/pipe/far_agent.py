"""Plays the operator: one shell, the script, the archive, lines in both directions."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from frtop_probe import wire
from frtop_probe.pipe import lines
from frtop_probe.pipe.packing import archive
from frtop_probe.pipe.start_script import start_script
from waiting import DEADLINE_S, wait_for

SHELL = ("sh",)
LONGEST = 1000
"""Bytes of a line: srun cuts those of 1,024."""


class FarAgent:
    """A shell as `ssh HOST sh` gives one, and what was said by it.

    Its environment has nothing of ours, and no site-packages.
    """

    def __init__(
        self,
        shell: Sequence[str] = SHELL,
        python: str = "",
        script: bytes | None = None,
        **environment: str,
    ) -> None:
        self.process = subprocess.Popen(
            shell,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **environment},
            bufsize=0,
        )
        self.seen: list[tuple[str, Any]] = []
        self._rest = self._pieces = self._errors = b""
        self._requests = 0
        self.send(script or start_script(python))

    @property
    def pid(self) -> int:
        """Of the shell, which becomes the agent."""
        return self.process.pid

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(data)

    def start(self) -> dict[str, Any]:
        """Sends the archive once it is asked for; returns what the agent says of itself."""
        self.await_word("boot")
        self.send(b"".join(lines.block(b"archive", archive())))
        hello: dict[str, Any] = self.await_word("hello")
        return hello

    def await_word(self, word: str, seconds: float = DEADLINE_S) -> Any:
        """The next line with this word; keeps all others in `seen`."""
        end = time.monotonic() + seconds
        while True:
            for name, value in self._read(end):
                self.seen.append((name, value))
                if name == word:
                    return value

    def request(self, make: type[Any], *fields: Any) -> Any:
        self._requests += 1
        number = self._requests
        self.send(lines.encoded(b"req", wire.to_frame(make(number, *fields))))
        while (response := self.await_word("res")).id != number:
            pass
        return response

    def await_end(self, seconds: float = DEADLINE_S) -> int:
        """Waits until it has ended by itself; its output is read, so that it can."""

        def has_ended() -> bool:
            with suppress(EOFError, TimeoutError):
                for one in self._read(time.monotonic()):
                    self.seen.append(one)
            return self.process.poll() is not None

        wait_for(has_ended, "the agent ends", seconds)
        assert self.process.returncode is not None
        return self.process.returncode

    def leave(self) -> None:
        self.send(b"bye\n")
        assert self.await_end() == 0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _read(self, end: float) -> list[tuple[str, Any]]:
        """Lines that have come, at least one unless `end` is over."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            left = max(0.0, end - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError(f"nothing more was said; before: {self.seen[-3:]}")
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                raise EOFError(f"it ended; before: {self.seen[-3:]}, errors: {self.errors()}")
            self._rest += piece
        *found, self._rest = self._rest.split(b"\n")
        assert max(map(len, found)) < LONGEST
        return [one for line in found if (one := self._meaning(line)) is not None]

    def _meaning(self, line: bytes) -> tuple[str, Any] | None:
        word, _, rest = line.partition(b" ")
        if word == lines.MORE:
            self._pieces += rest
            return None
        if not word.startswith(lines.PREFIX):
            return "noise", line
        rest, self._pieces = self._pieces + rest, b""
        name = word.removeprefix(lines.PREFIX).decode()
        if name in ("up", "res"):
            data = wire.from_frame(base64.b64decode(rest))
            return name, wire.decode_update(data) if name == "up" else wire.decode_response(data)
        return name, rest.decode() if name == "pong" else json.loads(rest)

    def errors(self) -> str:
        """What was written to standard error, once it has ended."""
        assert self.process.stderr is not None
        self._errors += self.process.stderr.read()
        return self._errors.decode()[-2000:]
