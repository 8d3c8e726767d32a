"""Real processes to be found, and a scanner that sees only them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from frtop_probe.unprepared.discovery.facts import Discovery, FoundJob
from frtop_probe.unprepared.discovery.scanner import Scanner
from waiting import wait_for

MARK = "FRTOP_DISCOVERY_TEST"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
TRAIN = """
import signal, sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

torch.set_num_threads(1)
dist.init_process_group("gloo")
batches = iter(DataLoader(list(range(64)), num_workers=int(sys.argv[1]), batch_size=2))
next(batches)
signal.pause()
"""


LIKE_A_RANK = """
import ctypes, signal, sys, threading

def named():
    ctypes.CDLL(None).prctl(15, b"gloo_tcp_loop", 0, 0, 0)  # PR_SET_NAME
    threading.Event().wait()

threading.Thread(target=named, daemon=True).start()
if len(sys.argv) > 1:
    ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
signal.pause()
"""
"""A process with the thread of a gloo backend; starts at once, because it needs no torch."""


class Programs:
    """Starts programs and finds the jobs in which their processes are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scanner = Scanner()
        self.started: list[subprocess.Popen[bytes]] = []

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def start(
        self, *command: str, environ: dict[str, str] | None = None,
        executable: str | None = None,
    ) -> subprocess.Popen[bytes]:  # fmt: skip
        variables = {**os.environ, MARK: str(self.folder), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, env={**variables, **(environ or {})}, start_new_session=True,
            executable=executable, cwd=self.folder,
        )  # fmt: skip
        self.started.append(process)
        return process

    def family(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == str(self.folder):
                    yield process
            except psutil.Error:
                continue

    def scan(self) -> Discovery:
        return self.scanner.scan()

    def jobs(self) -> list[FoundJob]:
        """Returns the jobs of this test; others may run on this machine."""
        return [job for job in self.scan().jobs if any(self._is_ours(r.pid) for r in job.ranks)]

    def _is_ours(self, pid: int) -> bool:
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            return f"{MARK}={self.folder}".encode() in variables
        return False

    def wait_for_job(self, ranks: int, helpers: int = 0) -> FoundJob:
        def found() -> FoundJob | None:
            jobs = self.jobs()
            if len(jobs) != 1 or len(jobs[0].ranks) != ranks:
                return None
            return jobs[0] if len(jobs[0].helpers) >= helpers else None

        return wait_for(found, lambda: f"a job of {ranks}: {self.jobs()}", 90, pause_s=0.1)

    def close(self) -> None:
        for process in list(self.family()):
            try:
                process.kill()
            except psutil.Error:
                continue
        for started in self.started:
            started.kill()
            started.wait(60)
