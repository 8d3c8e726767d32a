"""Starts the demo's job in its own folder, and removes all of it at the end."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import math
import operator
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from frtop_tui.demo.faults import CULPRIT, RANKS, Fault
from frtop_tui.errors import DemoFailed, Missing
from frtop_tui.prepare import prepare

if TYPE_CHECKING:
    import psutil  # like torch, installed only with the demo

SCRIPT: Final = Path(__file__).with_name("train.py")
SHARDS: Final = 160
STUCK_SHARD: Final = CULPRIT + RANKS * 12
"""The culprit's thirteenth shard: its worker reads it after a few seconds."""
FAULT_STEP: Final = 50
FEATURES: Final = 64
ROWS: Final = 64
"""Shape of a shard, as in `train.py`."""
_PR_SET_CHILD_SUBREAPER: Final = 36


class DemoJob:
    """The job as a context manager: on exit no process and no file remains."""

    def __init__(self, fault: Fault, *, prepared: bool = True) -> None:
        """Creates the folders; `start` starts the job.

        Unless it is `prepared`, it has no recorder: nothing in it knows about frtop.

        Raises:
            Missing: torch or psutil is not installed.
        """
        if not all(map(importlib.util.find_spec, ("torch", "psutil"))):
            raise Missing(
                "the demo trains a real model and needs torch", "pip install 'frtop[demo]'"
            )
        self.fault = fault
        self.prepared = prepared
        self.folder = Path(tempfile.mkdtemp(prefix="frtop-demo-"))
        memory = Path("/dev/shm")  # noqa: S108 - shared memory, not a temporary file
        usable = memory.is_dir() and os.access(memory, os.W_OK)
        self.rings = Path(tempfile.mkdtemp(prefix="frtop-demo-", dir=memory if usable else None))
        self.log = self.folder / "job.log"
        self.run_id = self.folder.name
        """What `--job` calls it: other jobs of this host may be seen, too."""
        self._launcher: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._before: set[psutil.Process] = set()

    def environment(self) -> dict[str, str]:
        """Isolates recorder, agent and operator of this demo from all others."""
        return {
            "FRTOP_DIR": str(self.rings),
            "FRTOP_KEY_FILE": str(self.folder / "key"),
            "FRTOP_BIND": "127.0.0.1",
            "FRTOP_AGENT_WITH": str(os.getpid()),
            "FRTOP_BOXES": "0",  # it ends badly on purpose
        }

    def start(self) -> None:
        """Writes the data and starts torchrun; returns at once."""
        import psutil  # noqa: PLC0415

        self._before = set(psutil.Process().children())
        _adopt_orphans(True)
        data = self.folder / "data"
        data.mkdir()
        self._temporary.mkdir()  # torch and multiprocessing leave files there
        _write_shards(data)
        if self.fault.name == "stall":
            self._make_pipe(data / f"shard-{STUCK_SHARD:04d}")
        elif self.fault.name == "file":
            self._make_pipe(data / "vocabulary")
        with self.log.open("wb") as log:
            self._launcher = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "c10d",
                 "--rdzv-endpoint", "localhost:0", "--local-addr", "localhost",
                 "--rdzv-id", self.run_id,
                 "--nproc-per-node", str(RANKS), str(SCRIPT), "--data", str(data),
                 "--fault", self.fault.name, "--fault-rank", str(CULPRIT),
                 "--fault-step", str(FAULT_STEP)],
                env=self._job_environment(),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def _job_environment(self) -> dict[str, str]:
        """The job's variables; without the recorder, none of frtop's."""
        temporary = {"OMP_NUM_THREADS": "1", "TMPDIR": str(self._temporary)}
        if self.prepared:
            return prepare({**os.environ, **self.environment(), **temporary})
        ours = {name: value for name, value in os.environ.items() if "FRTOP" not in name}
        return {**ours, **temporary}

    @property
    def _temporary(self) -> Path:
        return self.folder / "tmp"

    def _make_pipe(self, path: Path) -> None:
        """Creates a named pipe that nothing writes to: reading from it blocks forever."""
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def ended(self) -> bool:
        return self._launcher is None or self._launcher.poll() is not None

    def step(self) -> int:
        """The last training step in the job's output."""
        lines = [line for line in self.output().splitlines() if line.startswith("step ")]
        return int(lines[-1].split()[1]) if lines else 0

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def require_alive(self) -> None:
        """Raises `DemoFailed` with the end of the job's output if it ended before its fault."""
        if self.ended() and not self.step():
            output = "\n".join(self.output().splitlines()[-15:])
            raise DemoFailed(
                f"the demo's job ended before its first steps:\n{output}",
                "run it again; if it fails again, the lines above show why",
            )

    def stop(self) -> None:
        """Ends launcher, ranks, DataLoader workers and agent; removes every file."""
        import psutil  # noqa: PLC0415

        processes = self._processes()
        if self._launcher is not None and self._launcher.poll() is None:
            self._launcher.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 1.0
        while self._launcher is not None and time.monotonic() < deadline:
            if self._launcher.poll() is not None:
                break
            time.sleep(0.02)
        # A stopped or stuck rank ignores SIGTERM; torchrun would wait 30 s for it.
        processes = list({*processes, *self._processes()})
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=5)
        if self._launcher is not None:
            self._launcher.wait()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        _adopt_orphans(False)
        for process in set(psutil.Process().children()) - self._before:
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(process.pid, os.WNOHANG)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.rings, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        """All our descendants that belong to this demo."""
        import psutil  # noqa: PLC0415

        found = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                variables = process.environ()
                ours = variables.get("FRTOP_DIR") == str(self.rings)
                if ours or variables.get("TMPDIR") == str(self._temporary):
                    found.append(process)
        return found

    def __enter__(self) -> DemoJob:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _adopt_orphans(adopt: bool) -> None:
    """Makes the launcher's orphans our children, so that we can end them."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def _write_shards(folder: Path) -> None:
    """Writes a data set that a model can learn: a function of the features plus noise."""
    chance = random.Random(0)  # noqa: S311 - training data
    direction = [chance.gauss(0, 1) for _ in range(FEATURES)]
    rows = [[chance.gauss(0, 1) for _ in range(FEATURES)] for _ in range(ROWS)]
    for number in range(SHARDS):
        values = array("f")
        for row in rows:
            shifted = row[number % FEATURES :] + row[: number % FEATURES]
            values.extend(shifted)
            values.append(
                math.tanh(sum(map(operator.mul, shifted, direction))) + chance.gauss(0, 0.1)
            )
        (folder / f"shard-{number:04d}").write_bytes(values.tobytes())
