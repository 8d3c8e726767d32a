"""Runs programs of the zoo one by one and observes each of them as an operator would."""

from __future__ import annotations

import ast
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psutil

from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.prepare import prepare
from frtop_tui.sources.live import LiveSource
from zoo import cgroup
from zoo.ground_truth import Case, Mode, Truth, headlines

PROGRAMS: Final = Path(__file__).parents[1] / "jobs"
STABLE_S: Final = 2.0
"""Time in s for which verdicts must not change."""
START_S: Final = 60.0
DUMPS_S: Final = 3.0
"""Longest wait for dumps: a rank that is stopped, or whose GIL is held, never dumps."""
_NO_DATA: Final = frozenset({"connecting", "empty", "unheard"})
"""Health values without data: a control that ends in one of them proves nothing."""
_VARIABLES: Final = ("FRTOP_DIR", "FRTOP_KEY_FILE", "FRTOP_BIND", "FRTOP_AGENT_WITH", "ZOO_CGROUP")


def names() -> list[str]:
    """Returns all programs as `family/name`."""
    return sorted(
        f"{path.parent.name}/{path.stem}"
        for path in PROGRAMS.glob("*/*.py")
        if path.name != "__init__.py"
    )


def case_of(name: str) -> Case:
    """Reads a program's `CASE` without running the program, which would import torch."""
    tree = ast.parse((PROGRAMS / f"{name}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CASE":
            found = eval(
                compile(ast.Expression(node.value), name, "eval"),
                {"Case": Case, "Truth": Truth},
            )
            assert isinstance(found, Case)
            return found
    raise LookupError(f"{name} has no CASE")


def description_of(name: str) -> str:
    """Returns the first line of a program's docstring."""
    return (ast.get_docstring(ast.parse((PROGRAMS / f"{name}.py").read_text())) or "").split(
        "\n", 1
    )[0]


def missing(case: Case) -> str:
    """Returns which requirements of the program are missing here; "" for none."""
    return ", ".join(need for need in case.needs if not _IS_THERE[need]())


def _is_root() -> bool:
    return os.geteuid() == 0


def _has_hosts() -> bool:
    return _is_root() and all(map(shutil.which, ("ip", "unshare", "nsenter")))


_IS_THERE: Final[dict[str, Callable[[], bool]]] = {
    "root": _is_root,
    "hosts": _has_hosts,
    "memory cgroup": partial(cgroup.possible, "memory"),
    "cpu cgroup": partial(cgroup.possible, "cpu"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. Times are in s after the fault; None means never.

    `failure` is "" if all verdicts were right.
    """

    failure: str
    name: str = ""
    mode: Mode = "sync"
    who_s: float | None = None
    confirmed_s: float | None = None
    verdicts: tuple[Verdict, ...] = ()
    health: str = ""
    dumps: Path | None = None  # Flight Recorder dumps of the same job, if requested
    log: str = ""


class Zoo:
    """A context manager that leaves no process and no file."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="frtop-zoo-", dir=memory))
        self._parent: subprocess.Popen[bytes] | None = None
        self._runs = 0
        self._saved = {name: os.environ.get(name) for name in _VARIABLES}

    def __enter__(self) -> Zoo:  # noqa: PYI034 - Self needs Python 3.11
        os.environ["FRTOP_KEY_FILE"] = str(self.folder / "key")
        os.environ["FRTOP_BIND"] = "127.0.0.1"
        os.environ["FRTOP_AGENT_WITH"] = str(os.getpid())
        self._start_parent()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._parent is not None:
            with self._parent as parent:  # closes its pipes, and waits
                assert parent.stdin is not None
                parent.stdin.close()
                parent.wait(30)
        for name, value in self._saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, name: str, mode: Mode = "sync", *, dumps: bool = False) -> Outcome:
        """Runs one program and checks all verdicts about it."""
        case = case_of(name)
        assert mode in case.modes, f"{name} cannot run {mode}"
        assert not missing(case), f"{name} needs {missing(case)}"
        with ExitStack() as stack:
            for controller in ("memory", "cpu"):
                if f"{controller} cgroup" in case.needs:
                    group = stack.enter_context(cgroup.limited(controller))
                    os.environ["ZOO_CGROUP"] = str(group)
                    stack.callback(os.environ.pop, "ZOO_CGROUP")
            return self._run(case, name, mode, dumps=dumps)

    def _run(self, case: Case, name: str, mode: Mode, *, dumps: bool) -> Outcome:
        self._runs += 1
        folder = self.folder / f"{self._runs}"
        folder.mkdir()
        os.environ["FRTOP_DIR"] = str(folder / "frtop")
        (folder / "frtop").mkdir(mode=0o700)
        self._ask(do="start", program=str(PROGRAMS / f"{name}.py"), ranks=case.ranks,
                  environment=self._environment(case, mode, folder))  # fmt: skip
        source = LiveSource()
        watch = _Observer(case, folder, source.frame, self._running)
        try:
            outcome = watch.control() if case.healthy else watch.fault()
            outcome = replace(outcome, name=name, mode=mode)
            if dumps:
                outcome = replace(outcome, dumps=self._dumped(folder))
        finally:
            source.close()
            self._ask(do="stop")
            _end_agents(folder / "frtop")
        log = folder / "log"
        outcome = replace(outcome, log=log.read_text(errors="replace") if log.exists() else "")
        if not dumps:
            shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _environment(self, case: Case, mode: Mode, folder: Path) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in _VARIABLES if name in os.environ},
            "WORLD_SIZE": str(case.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
            "TMPDIR": str(folder),
            "ZOO_FOLDER": str(folder),
            "ZOO_MODE": mode,
            **case.environment,
        }

    def _running(self) -> bool:
        """Returns whether any rank still runs."""
        answer = self._ask(do="look")
        return len(answer["ended"]) < len(answer["pids"])

    def _dumped(self, folder: Path) -> Path:
        """Returns the folder with Flight Recorder dumps of all ranks that can still write them."""
        answer = self._ask(do="dump")
        alive = len(answer["pids"]) - len(answer["ended"])
        end = time.monotonic() + DUMPS_S
        while time.monotonic() < end:
            if len(list((folder / "fr").glob("nccl_trace_rank_*"))) >= alive:
                break
            time.sleep(0.1)
        return folder / "fr"

    def _start_parent(self) -> None:
        environment = prepare({**os.environ, "OMP_NUM_THREADS": "1"})
        self._parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("parent.py")), str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
            start_new_session=True, bufsize=0,
        )  # fmt: skip
        self._answer()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._parent is not None
        assert self._parent.stdin is not None
        self._parent.stdin.write(json.dumps(request).encode() + b"\n")
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._parent is not None
        assert self._parent.stdout is not None
        line = self._parent.stdout.readline()
        assert line, "the process that forks the ranks has ended"
        found: dict[str, Any] = json.loads(line)
        return found


class _Observer:
    """Checks one program frame by frame."""

    def __init__(
        self, case: Case, folder: Path, frame: Callable[[], Frame], running: Callable[[], bool]
    ) -> None:
        self._case, self._folder = case, folder
        self._frame, self._running = frame, running
        self._false_claim = ""

    def fault(self) -> Outcome:
        """Observes a fault until all verdicts are right and stable, or time is up."""
        case, began = self._case, time.monotonic()
        who: float | None = None
        confirmed: float | None = None
        frame = self._frame()
        while True:
            fault_time = self._fault_time_s()
            now = time.monotonic()
            if now - (fault_time or began) > (case.within_s if fault_time else START_S):
                break
            if confirmed is not None and now - (fault_time or began) - confirmed > STABLE_S:
                break
            if fault_time is None and not self._running():
                self._false_claim = self._false_claim or "ended before the fault"
                break
            frame = self._next(frame)
            elapsed = time.monotonic() - fault_time if fault_time else 0.0
            self._check(frame, early=fault_time is None)
            if case.identified(frame.verdicts):
                who = elapsed if who is None else who
                if case.confirmed(frame.verdicts):
                    confirmed = elapsed if confirmed is None else confirmed
                else:
                    confirmed = None
            else:
                who = confirmed = None
        failure = self._false_claim
        if not case.confirmed(frame.verdicts):
            failure = "; ".join(filter(None, [failure, case.mistakes(frame.verdicts)]))
        elif confirmed is None:
            failure = "; ".join(filter(None, [failure, "too late"]))
        return Outcome(
            failure,
            who_s=who,
            confirmed_s=confirmed,
            verdicts=frame.verdicts,
            health=frame.health,
        )

    def control(self) -> Outcome:
        """Observes a healthy control for `lasts_s` after it is first seen, or until it ends."""
        end = time.monotonic() + START_S
        frame, seen = self._frame(), False
        verdicts: tuple[Verdict, ...] = ()
        while time.monotonic() < end:
            frame = self._next(frame)
            if frame.ranks and not seen:
                seen, end = True, time.monotonic() + self._case.lasts_s
            verdicts = frame.verdicts or verdicts
            if not self._false_claim and (wrong := self._case.false_claim(frame)):
                self._false_claim = wrong
            if seen and not self._running():
                end = min(end, time.monotonic() + STABLE_S)
        failure = self._false_claim
        if not seen:
            failure = failure or "never seen"
        elif frame.health in _NO_DATA:
            failure = failure or f"no data at the end: {frame.health}"
        elif self._case.allowed and self._fault_time_s() is None:
            failure = failure or "its event did not happen"
        return Outcome(failure, verdicts=verdicts, health=frame.health)

    def _next(self, before: Frame) -> Frame:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            if (frame := self._frame()) is not before:
                return frame
            time.sleep(0.02)
        return self._frame()

    def _check(self, frame: Frame, *, early: bool) -> None:
        """Records a wrong claim; before the fault, any verdict is wrong."""
        if self._false_claim:
            return
        if wrong := self._case.false_claim(frame):
            self._false_claim = wrong
        elif early and frame.verdicts and self._fault_time_s() is None:
            self._false_claim = f"before the fault: {headlines(frame.verdicts)}"

    def _fault_time_s(self) -> float | None:
        with suppress(OSError, ValueError):
            return int((self._folder / "fault").read_text()) / 1e9
        return None


def _end_agents(folder: Path) -> None:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "frtop_probe.agent" in process.cmdline() and process.environ().get(
                "FRTOP_DIR"
            ) == str(folder):
                process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
