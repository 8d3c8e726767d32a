"""Runs one test after the other without and with the recorder, in two servers side by side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

import msgspec

from frtop_tui.prepare import prepare
from torch_suite import rings
from torch_suite.results import Ended, Pair, Recorded, Result
from torch_suite.server import OUTPUT, RINGS

TESTS: Final = Path(__file__).parents[1]
Start = Literal["fork", "spawn"]
MORE_PAIRS: Final = 4
"""How often a test is run again, without and with, if it did not end the same."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Which tests to run and how.

    `suite` is for `shipped.load`, `python` has torch, `limit_s` is for one run of one test.
    """

    suite: str
    python: Path
    start: Start
    limit_s: float


class Server:
    """One Python that has torch loaded and runs tests in processes of their own.

    Raises:
        RuntimeError: the server ended; its own output has the reason.
    """

    def __init__(self, setting: Setting, memory: Path, *, recorded: bool) -> None:
        self._recorded, self._memory, self._limit_s = recorded, memory, setting.limit_s
        environ = {name: v for name, v in os.environ.items() if not name.startswith("FRTOP_")}
        environ.update({"PYTHONPATH": str(TESTS)})
        environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun sets it
        # A test that hangs ends itself with stacks, before it is killed without.
        environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", f"{setting.limit_s * 0.8:.0f}")
        if recorded:
            # Rings stay until they are read here, so nobody may clean up.
            environ = {**prepare(environ), "FRTOP_AGENT": "0", "FRTOP_DIR": str(memory)}
        command = [str(setting.python), "-m", "torch_suite.server", setting.suite, setting.start]
        self._process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt in a terminal is for its parent
        )
        first = self._answer()
        self.tests: list[str] = first["tests"]
        self.torch: str = first["torch"]

    def run(self, test: str) -> tuple[Ended, Recorded]:
        folder = Path(tempfile.mkdtemp(dir=self._memory))
        try:
            (folder / RINGS).mkdir(mode=0o700)
            request = {"test": test, "folder": str(folder), "limit_s": self._limit_s}
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            ended = msgspec.convert(self._answer(), Ended)
            found = rings.read(folder / RINGS, folder / OUTPUT) if self._recorded else Recorded()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return ended, found

    def close(self) -> None:
        assert self._process.stdin is not None
        with self._process as process:
            self._process.stdin.close()
            process.wait(30)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the tests' Python ended; its error is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Pairs:
    """Both servers; a context manager that leaves no process and no file."""

    def __init__(self, setting: Setting) -> None:
        self._memory = Path(tempfile.mkdtemp(prefix="frtop-torch-suite-", dir="/dev/shm"))
        self._setting = setting
        self._turn = False

    def __enter__(self) -> Pairs:  # noqa: PYI034 - Self needs Python 3.11
        self._without = Server(self._setting, self._memory, recorded=False)
        self._recorded = Server(self._setting, self._memory, recorded=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._without.close()
        self._recorded.close()
        shutil.rmtree(self._memory, ignore_errors=True)

    @property
    def tests(self) -> list[str]:
        return self._without.tests

    @property
    def torch(self) -> str:
        return self._without.torch

    def run(self, test: str, at_least: int = 1) -> Result:
        """Runs a test in pairs: `at_least` so many, and more if one was unequal."""
        pairs = [self._pair(test) for _ in range(at_least)]
        if not all(pair.equal for pair in pairs):
            pairs += [self._pair(test) for _ in range(MORE_PAIRS)]
        return Result(test, tuple(pairs))

    def _pair(self, test: str) -> Pair:
        """Runs one pair. Who comes first changes, so that neither always finds files cached."""
        self._turn = not self._turn
        if self._turn:
            without, _ = self._without.run(test)
            recorded, recorder = self._recorded.run(test)
        else:
            recorded, recorder = self._recorded.run(test)
            without, _ = self._without.run(test)
        return Pair(without, recorded, recorder)
