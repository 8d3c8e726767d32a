"""Real jobs of each launcher hang: frtop names the rank, with the recorder and without.

`LAUNCHERS=/path/to/python` names one with accelerate, deepspeed, lightning and
ray[default,train]; Slurm is one of two nodes that the test starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.conftest import JOBS, family, frtop, own_home
from files.logs.making import slurm
from free_port import free_port
from waiting import wait_for

pytestmark = [pytest.mark.job, pytest.mark.long, pytest.mark.timeout(700)]
PYTHON = os.environ.get("LAUNCHERS", sys.executable)
BIN = Path(PYTHON).parent
HANGS = "told_to_hang.py"
RAY_NODE = """
"$1" start --head --port 0 --num-cpus 4 --disable-usage-stats --include-dashboard False
FRTOP_OFF=1 RAY_ADDRESS=auto exec "$0" "$2" .
"""
RAY_SUBMIT = """
"$1" start --head --port 0 --num-cpus 4 --disable-usage-stats --dashboard-port "$3" \\
  --min-worker-port 32100 --max-worker-port 32700
export RAY_API_SERVER_ADDRESS="http://127.0.0.1:$3"
until "$1" job list; do sleep 1; done
FRTOP_OFF=1 exec "$1" job submit -- "$0" "$2" "$PWD"
"""
PROGRAMS = (JOBS, Path(__file__).parent / "jobs")
COMMANDS: dict[str, tuple[str, ...]] = {
    "torch": (PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
              HANGS, ".", "1"),
    "accelerate": (f"{BIN}/accelerate", "launch", "--multi_gpu", "--num_processes", "2",
                   "accelerate_ddp.py", "."),
    "deepspeed": (f"{BIN}/deepspeed", "--num_accelerators", "2", "deepspeed_zero.py", "."),
    "lightning": (PYTHON, "lightning_ddp.py", "."),
    "ray": (PYTHON, "ray_train.py", "."),
    "ray start": ("sh", "-c", RAY_NODE, PYTHON, f"{BIN}/ray", "ray_train.py"),
    "ray job submit": ("sh", "-c", RAY_SUBMIT, PYTHON, f"{BIN}/ray", "ray_train.py",
                       str(free_port())),
}  # fmt: skip
SETTINGS = {"ACCELERATE_USE_CPU": "1", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0",
            "RAY_AUTH_MODE": "disabled",
            "RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0",
            "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "400",
            "RAY_worker_register_timeout_seconds": "400"}  # fmt: skip
STARTED_S = 400
"""How long a job may start; Ray took minutes on two processors with a load of 45."""
RUN = (sys.executable, "-m", "frtop_tui", "run")
OF_A_TASK = ("sh", "-c", 'RANK=$SLURM_PROCID exec "$@"', "sh", PYTHON, HANGS, ".", "1")
UNDER_SLURM: dict[str, tuple[str, ...]] = {
    "unprepared": ("srun", "-N", "2", "-n", "2", *OF_A_TASK),
    "run-srun": (*RUN, "--", "srun", "-N", "2", "-n", "2", *OF_A_TASK),
    "srun-run": ("srun", "-n", "1", *RUN, "--record", "boxes", "--", *COMMANDS["torch"]),
}


def has(package: str) -> bool:
    done = subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True, check=False)
    return done.returncode == 0


def verdict_on(command: tuple[str, ...], folder: Path, *, recorded: bool) -> dict[str, Any]:
    """Starts the job, waits until it hangs, and returns what frtop says; ends the job."""
    (folder / "hang").touch()
    os.mkfifo(folder / "shard")
    paths = [str(next((one / word for one in PROGRAMS if (one / word).is_file()), word))
             for word in command]  # fmt: skip
    name = next((one.rpartition("/")[2] for one in command if one.endswith(".py")), HANGS)
    name = "RayTrainWorker" if name == "ray_train.py" else name
    with pytest.MonkeyPatch.context() as patch, own_home(patch) as home:
        patch.setenv("FRTOP_UNPREPARED", "0" if recorded else "1")
        for setting, value in SETTINGS.items():
            patch.setenv(setting, value)
        log = (folder / "log").open("w")
        job = subprocess.Popen(paths, stdout=log, stderr=log, cwd=folder)

        def hung() -> dict[str, Any] | None:
            done = frtop("diagnose", "--json", "--wait", "30", "--job", name)
            said: dict[str, Any] = json.loads(done.stdout or "{}")
            return said if said.get("health") == "hung" else None

        try:
            return wait_for(hung, (folder / "log").read_text, STARTED_S, 1)
        finally:
            log.close()
            for one in family(home):  # Ray's titles overwrite the environment of children
                with suppress(psutil.NoSuchProcess):
                    for process in (*one.children(recursive=True), one):
                        process.kill()
            job.kill()
            job.wait()


def check(said: dict[str, Any], *, recorded: bool) -> None:
    (verdict,) = said["verdicts"]
    assert (verdict["kind"], verdict["culprits"]) == ("not_entered", [1])
    assert verdict["why"]["cause"] == "file_io"
    assert said["coverage"]["reporting"] == said["coverage"]["expected"] == 2
    assert said["job"]["prepared"] is recorded


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "unprepared"])
@pytest.mark.parametrize("package", COMMANDS)
def test_a_hang_is_named(package: str, recorded: bool, tmp_path: Path) -> None:
    if not has(package.partition(" ")[0]):
        pytest.skip(f"LAUNCHERS has no {package}")
    command = (*RUN, "--", *COMMANDS[package]) if recorded else COMMANDS[package]
    check(verdict_on(command, tmp_path, recorded=recorded), recorded=recorded)


@pytest.mark.parametrize("way", UNDER_SLURM)
@pytest.mark.skipif(not slurm.is_installed(), reason="there is no Slurm, or this is not root")
def test_a_hang_under_slurm_is_named(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with slurm.slurm(tmp_path / "slurm") as env:
        for name, value in (*env.items(), ("MASTER_PORT", str(free_port()))):
            monkeypatch.setenv(name, value)
        recorded = way != "unprepared"
        check(verdict_on(UNDER_SLURM[way], tmp_path, recorded=recorded), recorded=recorded)
