"""Runs programs of the zoo one by one and observes each of them as an operator would."""

from __future__ import annotations

import ast
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psutil

from free_port import free_port
from frtop_tui.connect.agent_start import start_agent
from frtop_tui.connect.live import LiveSource
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import is_called
from frtop_tui.prepare import ZERO_CODE_START, prepare
from frtop_tui.statistics.wanted import StatisticsWanted
from zoo import cgroup, ground_truth
from zoo.capture_file import FAMILY, mistakes_of_capture
from zoo.forker import Forker
from zoo.ground_truth import Case, Mode
from zoo.observer import START_S, Observer, Outcome, UnpreparedObserver

PROGRAMS: Final = Path(__file__).parents[1] / "jobs"
LATE_S: Final = 3.0
"""How long a job hangs before frtop comes, where it comes late."""
DUMPS_S: Final = 3.0
"""Longest wait for dumps: a rank that is stopped, or whose GIL is held, never dumps."""
GONE: Final = "ended before frtop came"
RECORDER: Final = "recorder"
"""What a program needs that starts or stops the recorder or its agent."""
_VARIABLES: Final = (
    "FRTOP_DIR", "FRTOP_KEY_FILE", "FRTOP_BIND", "FRTOP_AGENT_WITH", "FRTOP_UNPREPARED",
    "FRTOP_BOXES", "ZOO_CGROUP",
)  # fmt: skip


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
            found = eval(compile(ast.Expression(node.value), name, "eval"), vars(ground_truth))
            assert isinstance(found, Case)
            return found
    raise LookupError(f"{name} has no CASE")


def description_of(name: str) -> str:
    """Returns the first line of a program's docstring."""
    return (ast.get_docstring(ast.parse((PROGRAMS / f"{name}.py").read_text())) or "").split(
        "\n", 1
    )[0]


def missing(case: Case, *, prepared: bool = True) -> str:
    """Returns which requirements of the program are missing here; "" for none."""
    needs = [need for need in case.needs if not (prepared and need == RECORDER)]
    return ", ".join(need for need in needs if need == RECORDER or not _IS_THERE[need]())


def comes_late(name: str, mode: Mode) -> bool:
    """Returns whether frtop comes to an unprepared program only after the fault.

    In half of the modes. Whoever comes after a death finds no process, and a control has no
    fault.
    """
    return mode.startswith("late") and not name.startswith("dead/") and not case_of(name).healthy


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


class Zoo:
    """A context manager that leaves no process and no file.

    Args of the constructor: `prepared` is False for jobs that do not use frtop. A verdict on
    a fault may take `patience` times as long as the program says: for hosts with other work.
    """

    def __init__(self, *, prepared: bool = True, patience: float = 1.0) -> None:
        self._patience = patience
        self._prepared = prepared
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="frtop-zoo-", dir=memory))
        self._forker: Forker | None = None
        self._runs = 0
        self._saved = {name: os.environ.get(name) for name in _VARIABLES}

    def __enter__(self) -> Zoo:  # noqa: PYI034 - Self needs Python 3.11
        os.environ["FRTOP_KEY_FILE"] = str(self.folder / "key")
        os.environ["FRTOP_BIND"] = "127.0.0.1"
        os.environ["FRTOP_AGENT_WITH"] = str(os.getpid())
        os.environ["FRTOP_BOXES"] = "0"
        # Other programs of the zoo run on this host.
        os.environ["FRTOP_UNPREPARED"] = "0" if self._prepared else "1"
        self._start_parent()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._forker is not None:
            self._forker.close()
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
        lacks = missing(case, prepared=self._prepared)
        assert not lacks, f"{name} needs {lacks}"
        if not case.healthy:
            case = replace(case, within_s=case.within_s * self._patience)
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
        request = {
            "do": "start",
            "program": str(PROGRAMS / f"{name}.py"),
            "ranks": case.ranks,
            "environment": self._environment(case, name, mode, folder),
        }
        with ExitStack() as stack:
            stack.callback(_end_agents, folder / "frtop")
            stack.callback(self._ask, do="stop")
            found = self._watch(stack, case, folder, request, late=comes_late(name, mode))
            if found is None:
                return Outcome("", name, mode, reached="undecided", reason=GONE)
            watch, source = found
            outcome = watch.control() if case.healthy else watch.fault()
            outcome = replace(outcome, name=name, mode=mode)
            if self._prepared and name.startswith(FAMILY) and not outcome.failure:
                wrong = mistakes_of_capture(source, case, folder / "slow.cap")
                outcome = replace(outcome, failure=wrong)
            if dumps:
                outcome = replace(outcome, dumps=self._dumped(folder))
        log = folder / "log"
        outcome = replace(outcome, log=log.read_text(errors="replace") if log.exists() else "")
        if not dumps:
            shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _watch(
        self, stack: ExitStack, case: Case, folder: Path, request: dict[str, Any], *, late: bool
    ) -> tuple[Observer, Source] | None:
        """Starts the program, and frtop before or after it; None if it has ended by then.

        An agent finds all jobs of this host, so the program's own job is named.
        """
        job = _address(request["environment"])
        if self._prepared or late:
            self._ask(**request)
        if not self._prepared:
            if late and not self._hangs(folder):
                return None
            assert start_agent() is None
        source = LiveSource(job=job)
        stack.callback(source.close)
        source.want_statistics(StatisticsWanted(), whom="verdicts")
        kind = Observer if self._prepared else UnpreparedObserver
        watch: Observer = kind(case, folder, lambda: _of_job(source.frame(), job), self._running)
        if not self._prepared and not late:
            self._ask(**request)
        return watch, source

    def _hangs(self, folder: Path) -> bool:
        """Waits until the fault is `LATE_S` old; returns whether any rank still runs."""
        end = time.monotonic() + START_S
        while not (folder / "fault").exists() and time.monotonic() < end and self._running():
            time.sleep(0.05)
        time.sleep(LATE_S)
        return self._running()

    def _environment(self, case: Case, name: str, mode: Mode, folder: Path) -> dict[str, str]:
        passed = {
            variable: os.environ[variable]
            for variable in _VARIABLES
            if variable in os.environ and (self._prepared or not variable.startswith("FRTOP_"))
        }
        if not self._prepared and not comes_late(name, mode):
            passed["ZOO_SEEN"] = "1"
        return {
            **passed,
            "WORLD_SIZE": str(case.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
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
        environment = prepare(os.environ) if self._prepared else without_frtop(os.environ)
        self._forker = Forker(self.folder, environment)

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._forker is not None
        return self._forker.ask(**request)


def without_frtop(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which a job never hears of frtop."""
    path = environ.get("PYTHONPATH", "").split(os.pathsep)
    return {
        **{name: value for name, value in environ.items() if not name.startswith("FRTOP_")},
        "PYTHONPATH": os.pathsep.join(part for part in path if part != str(ZERO_CODE_START)),
    }


def _address(environment: Mapping[str, str]) -> str:
    return f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"


def _of_job(frame: Frame, job: str) -> Frame:
    """Leaves a frame of another job empty: several programs may run on this host."""
    if frame.job is None or is_called(frame.job, job):
        return frame
    return Frame(now_ns=frame.now_ns, wall_ns=frame.wall_ns)


def _end_agents(folder: Path) -> None:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "frtop_probe.agent" in process.cmdline() and process.environ().get(
                "FRTOP_DIR"
            ) == str(folder):
                process.kill()
