"""Runs single tests in the job's Python: standard library and torch only.

    python -m torch_suite.server SUITE fork|spawn

Torch is imported once. Each test gets a process of its own, forked from this one, in a session of
its own, so that a crash or a hang ends that test alone and nothing of it stays. The ranks are
forked from there, too, which saves ten seconds of imports a test, or spawned as torch does it.

Standard input has one request a line, standard output one answer a line, both JSON.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from torch_suite import shipped

OUTPUT: Final = "output"
RINGS: Final = "rings"
_ENDED: Final = "ended.json"
_POLL_S: Final = 0.02


class _Result(unittest.TestResult):
    """Keeps the state of one test, the worst one if there are several."""

    def ended(self) -> tuple[str, str]:
        broken = [*self.errors, *self.failures]
        if broken:
            return "failed", _error(broken[0][1])
        if self.unexpectedSuccesses:
            return "failed", "unexpected success"
        if self.skipped:
            return "skipped", self.skipped[0][1]
        return "passed", "expected failure" if self.expectedFailures else ""


def _error(text: str) -> str:
    """Returns the last line that names an exception: torch adds advice below it."""
    lines = text.strip().splitlines()
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
    return (named or lines or [""])[-1]


def main() -> None:
    suite, start = sys.argv[1:3]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever torch prints while it is imported
    shipped.set_environment()
    classes = shipped.load(suite)
    if start == "fork":
        _fork_ranks()
    else:
        os.environ["TORCH_SUITE"] = suite
    cases = {_name(case): case for case in _cases(classes)}
    torch: Any = sys.modules["torch"]
    _send(answers, {"tests": list(cases), "torch": torch.__version__})
    for line in sys.stdin:
        request = json.loads(line)
        folder = Path(request["folder"])
        _send(answers, _run(cases[request["test"]], folder, float(request["limit_s"])))


def _send(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _cases(classes: list[type[unittest.TestCase]]) -> Iterator[unittest.TestCase]:
    for found in classes:
        yield from unittest.defaultTestLoader.loadTestsFromTestCase(found)  # type: ignore[misc]


def _name(case: unittest.TestCase) -> str:
    """Returns class and test; where it is not of torch's wheel, with the module before."""
    return case.id().removeprefix(shipped.__name__ + ".")


def _fork_ranks() -> None:
    """Makes torch's tests fork their ranks where they would spawn them."""
    common: Any = sys.modules["torch.testing._internal.common_distributed"]
    multiprocessing: Any = sys.modules["torch.multiprocessing"]

    def start(self: Any) -> None:
        self._start_processes(multiprocessing.get_context("fork").Process)

    common.MultiProcessTestCase._spawn_processes = start
    multiprocessing.set_start_method("fork", force=True)  # for those that keep their ranks


def _run(case: unittest.TestCase, folder: Path, limit_s: float) -> dict[str, Any]:
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_test(case, folder)
    in_time = _wait(child, began + limit_s)
    # Not reaped yet: its number, which is its group's, belongs to nobody else.
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    seconds = round(time.monotonic() - began, 2)
    try:
        state, detail = json.loads((folder / _ENDED).read_text())
    except (OSError, ValueError):
        state, detail = ("crashed", f"wait status {status}")
        if not in_time:
            state, detail = ("timeout", f"killed after {limit_s:.0f} s")
    return {"state": state, "detail": detail[:300], "seconds": seconds}


def _wait(child: int, deadline: float) -> bool:
    """Waits until a child has ended, and leaves it to be reaped; returns False if it does not."""
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        time.sleep(_POLL_S)
    return False


def _be_test(case: unittest.TestCase, folder: Path) -> None:
    """Runs one test and ends this process."""
    try:
        os.setsid()
        output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, descriptor)
        scratch = folder / "tmp"
        scratch.mkdir()
        os.chdir(scratch)
        os.environ.update({"TMPDIR": str(scratch), "TEMP_DIR": str(scratch)})
        tempfile.tempdir = str(scratch)
        if "FRTOP_DIR" in os.environ:
            os.environ["FRTOP_DIR"] = str(folder / RINGS)
        result = _Result()
        unittest.TestSuite([case]).run(result)
        sys.stdout.flush()
        sys.stderr.flush()
        ended = folder / (_ENDED + ".part")
        ended.write_text(json.dumps(result.ended()))
        ended.rename(folder / _ENDED)
    except BaseException:  # noqa: BLE001 - reported, and nothing may run on in this copy
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
