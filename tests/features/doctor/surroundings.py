"""Runs `frtop doctor` in arranged surroundings, and reads what it says."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from free_port import free_port

FRTOP = (sys.executable, "-m", "frtop_tui")
HERE = Path(__file__).parent
NO_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")
USER = 54321
OTHER_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
              "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search",
              "--bounding-set=-all,+dac_read_search", "--")  # fmt: skip
"""Another user, who may read files (Python may lie in a private home), and trace nobody."""
LIKE_A_RANK = """
import ctypes, os, signal, threading

def named():
    ctypes.CDLL(None).prctl(15, b"gloo_tcp_loop", 0, 0, 0)  # PR_SET_NAME
    threading.Event().wait()

threading.Thread(target=named, daemon=True).start()
print(os.getpid(), flush=True)
signal.pause()
"""
"""A process that is found as a rank, without torch: it starts at once."""
TORCH_RANK = """
import os, signal
import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for _ in range(3):
    dist.all_reduce(torch.ones(3))
print(os.getpid(), flush=True)
signal.pause()
"""

needs_root = pytest.mark.skipif(
    os.getuid() != 0 or not all(map(shutil.which, ("setpriv", "unshare", "mount"))),
    reason="needs root, setpriv and unshare to arrange surroundings",
)


class Report:
    """What one run of `frtop doctor` has said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        assert done.returncode in (0, 1), done.stdout + done.stderr
        self.exit_status = done.returncode
        self.document: dict[str, Any] = json.loads(done.stdout)
        self.tiers: dict[str, Any] = {tier["code"]: tier for tier in self.document["tiers"]}

    def mark(self, code: str) -> str:
        return str(self.tiers[code]["mark"])

    def marks(self, *codes: str) -> list[str]:
        return [self.mark(code) for code in codes]

    def obstacle(self, tier: str, code: str) -> dict[str, Any]:
        found = {one["code"]: one for one in self.tiers[tier]["obstacles"]}
        assert code in found, (self.tiers[tier], self.document["host"])
        one: dict[str, Any] = found[code]
        return one

    def changes(self, tier: str, code: str, where: str) -> list[str]:
        """The lines to be typed or written in one place that open a tier."""
        changes = self.obstacle(tier, code)["changes"]
        return [change["line"] for change in changes if change["where"] == where]

    def change(self, tier: str, code: str, where: str = "type") -> str:
        return self.changes(tier, code, where)[0]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a run: a folder and a key file of its own."""
    folder = tmp_path / "frtop"
    folder.mkdir(mode=0o700)
    return {"FRTOP_DIR": str(folder), "FRTOP_KEY_FILE": str(tmp_path / "key")}


def doctor(environment: Mapping[str, str], *arguments: str, prefix: Sequence[str] = ()) -> Report:
    """Runs it, behind a command that arranges its surroundings."""
    variables = {name: value for name, value in os.environ.items() if name != "FRTOP_UNPREPARED"}
    done = subprocess.run(
        [*prefix, *FRTOP, "doctor", "--json", *arguments],
        env={**variables, **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return Report(done)


@contextmanager
def rank(
    code: str, *, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Runs a program that prints its pid when it is ready; gives its pid here."""
    variables = {
        "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "h", "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1", **(environment or {}),
    }  # fmt: skip
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", code], env={**os.environ, **variables},
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.strip().isdigit(), "it ended before it was ready"
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def in_mounts(*commands: str) -> tuple[str, ...]:
    """A prefix: a mount namespace of its own, in which commands are run first."""
    script = "; ".join(("set -e", *commands, 'exec "$@"'))
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh")


def typed(line: str) -> str:
    """A line as root types it: without sudo and without the remark."""
    return line.partition("    #")[0].removeprefix("sudo ").strip()
