"""A plain torchrun job for measurements, and a screen's source that follows it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from bench.unprepared_rank import COUNT
from frtop_probe.agent import announcement
from frtop_tui.connect.agent_start import start_agent
from frtop_tui.connect.live import LiveSource
from frtop_tui.job.naming import RankPid

START_S: Final = 120.0


class UnpreparedJob:
    """A plain torchrun job, and a folder for the agent; `pid` is rank 0's."""

    def __init__(self, ranks: int, what: str) -> None:
        self._ranks = ranks
        self._what = what
        self.folder = Path(tempfile.mkdtemp(prefix="frtop-bench-", dir="/dev/shm"))
        self.pid = 0

    def __enter__(self) -> UnpreparedJob:  # noqa: PYI034 - Self needs Python 3.11
        os.environ |= {
            "FRTOP_DIR": str(self.folder), "FRTOP_KEY_FILE": str(self.folder / "key"),
            "FRTOP_BIND": "127.0.0.1", "FRTOP_BOXES": "0",
        }  # fmt: skip
        plain = {name: value for name, value in os.environ.items() if "FRTOP" not in name}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
             str(self._ranks), "-m", "bench.unprepared_rank", str(self.folder), self._what],
            env={**plain, "OMP_NUM_THREADS": "1"}, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(lambda: len(list(self.folder.glob("rank*"))) == self._ranks)
        time.sleep(1)
        self.pid = int((self.folder / "rank0").read_text())
        return self

    @property
    def steps(self) -> int:
        return int(COUNT.unpack((self.folder / "steps").read_bytes())[0])

    def pace(self, seconds: float) -> float:
        """Steps a second."""
        steps, begin = self.steps, time.monotonic()
        time.sleep(seconds)
        return (self.steps - steps) / (time.monotonic() - begin)

    def end_agent(self) -> None:
        card = announcement.find_agent(self.folder)
        if card is not None:
            os.kill(card.pid, signal.SIGTERM)
            until(lambda: announcement.find_agent(self.folder) is None)

    def __exit__(self, *_: object) -> None:
        self.end_agent()
        ranks = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait()
        for one in ranks:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(ranks, 10)
        shutil.rmtree(self.folder)


class Following:
    """A screen's source on a job; the agent ends with it."""

    def __init__(self, job: UnpreparedJob) -> None:
        self._job = job

    def __enter__(self) -> Following:  # noqa: PYI034 - Self needs Python 3.11
        assert start_agent() is None
        self._source = LiveSource(job=RankPid(self._job.pid))
        until(lambda: self._source.frame().ranks)
        card = announcement.find_agent(self._job.folder)
        assert card is not None
        self.agent = card.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._job.end_agent()


def until(condition: Callable[[], object]) -> None:
    """Waits for a condition that is about to hold."""
    end = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < end, "it does not come up"
        time.sleep(0.02)
