"""A Slurm of two nodes on this machine, in a folder of its own: srun's lines have to be real."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from free_port import free_port

_NEEDED: Final = ("srun", "slurmctld", "slurmd", "munged")
_READY_S: Final = 20
_CONF: Final = """\
ClusterName=made
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
KillWait=5
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:16 MaxTime=INFINITE
"""


def is_installed() -> bool:
    """Whether there is a Slurm, and this user may start one."""
    return os.getuid() == 0 and all(map(shutil.which, _NEEDED))


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Gives what clients of a Slurm need in their environment; it runs until the end."""
    env = {"SLURM_CONF": str(folder / "slurm.conf")}
    for name in ("", "state", "node1", "node2"):
        (folder / name).mkdir(mode=0o755)
    ports = [free_port() for _ in range(3)]
    conf = _CONF.format(folder=folder, host=socket.gethostname(), ports=ports)
    (folder / "slurm.conf").write_text(conf)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    files = {"socket": "munge.socket", "key-file": key.name, "log-file": "munged.log",
             "pid-file": "munged.pid", "seed-file": "munge.seed"}  # fmt: skip
    try:
        _run(env, "munged", "--force", *(f"--{name}={folder / to}" for name, to in files.items()))
        _run(env, "slurmctld")
        for node in ("node1", "node2"):
            _run(env, "slurmd", "-N", node)
        end = time.monotonic() + _READY_S
        while _run(env, "sinfo", "-h", "-t", "idle", "-o", "%D").strip() != "2":
            if time.monotonic() > end:
                raise TimeoutError("Slurm's nodes did not come up")
            time.sleep(0.2)
        try:
            yield env
        finally:
            _end_jobs(env)
    finally:
        _stop(folder)


def _run(env: Mapping[str, str], *command: str) -> str:
    whole = {**os.environ, **env}
    return subprocess.run(command, env=whole, check=True, capture_output=True, text=True).stdout


def _end_jobs(env: Mapping[str, str]) -> None:
    """Ends what runs still: processes of steps would outlive slurmd."""
    _run(env, "scancel", "--user=root")
    end = time.monotonic() + _READY_S
    while _run(env, "squeue", "-h") and time.monotonic() < end:
        time.sleep(0.2)


def _stop(folder: Path) -> None:
    for name in ("node1", "node2", "slurmctld", "munged"):
        path = folder / f"{name}.pid"
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(path.read_text()), signal.SIGTERM)
        end = time.monotonic() + _READY_S
        while path.exists() and time.monotonic() < end:
            time.sleep(0.1)
