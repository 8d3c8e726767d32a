"""Starts a job in one of the ways in which people start jobs, and keeps all that it writes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from files.logs.making.faults import Run
from free_port import free_port

PROGRAM: Final = Path(__file__).with_name("train.py")
PYTHON: Final = str(Path(sys.prefix).resolve() / "bin" / "python")
TORCHRUN: Final = (PYTHON, "-m", "torch.distributed.run")
SPY: Final = Path(PYTHON).with_name("py-spy")
_GRACE_S: Final = 75
"""What a job may take besides the timeout of its ops; torchrun gives stopped ranks 30 s."""
_AFTER_FIRST_S: Final = 25
"""How long others may go on after the first rank has ended, where no launcher sees to it."""
_SHELL: Final = """\
for rank in $(seq 0 $(({world} - 1))); do
  RANK=$rank WORLD_SIZE={world} {command} > >(sed -u "s/^/$rank: /") 2>&1 &
done
wait -n
for second in $(seq {after}); do [ -z "$(jobs -pr)" ] && break; sleep 1; done
kill -TERM $(jobs -pr) 2>/dev/null; sleep 1; kill -KILL $(jobs -pr) 2>/dev/null
wait; sleep 0.2
"""


class Failed(Exception):
    """The job did not do what it should."""


def make(run: Run, folder: Path, slurm: Mapping[str, str]) -> None:
    """Runs the job in `folder`, where its logs are left.

    Raises:
        Failed: not the ranks that should have had the fault, or no end in time.
    """
    signs = folder.with_name(f"{folder.name}.signs")
    signs.mkdir()
    shutil.copy(PROGRAM, folder)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FRTOP", "SLURM", "PYTEST"))}
    env |= {**run.env, **slurm, "STRUCK": str(signs), "MASTER_ADDR": "127.0.0.1"}
    spawned = ["--spawn", str(run.made.world)] if run.made.way == "spawn" else []
    env["OPTIONS"] = json.dumps([*run.options, *spawned])
    port = env["MASTER_PORT"] = str(free_port())
    job = _Job(run, folder, signs, env)
    try:
        with ExitStack() as held:
            if run.fault.name.startswith("port in use"):
                listener = held.enter_context(socket.socket())
                listener.bind(("", int(port)))
                listener.listen()
            job.start()
            job.watch()
    finally:
        job.clean()
        (folder / PROGRAM.name).unlink()
    struck = sorted(int(path.suffix[1:]) for path in signs.glob("struck.*"))
    if struck != job.should_strike():
        raise Failed(f"ranks {struck} had the fault, not {job.should_strike()}")


class _Job:
    def __init__(self, run: Run, folder: Path, signs: Path, env: dict[str, str]) -> None:
        self._run, self._folder, self._signs, self._env = run, folder, signs, env
        self._started: list[subprocess.Popen[bytes]] = []

    def should_strike(self) -> list[int]:
        name, at = self._run.fault.name, self._run.options[3]
        if name.startswith(("none", "cancelled", "port", "second host", "no second")):
            return []
        ranks = {*map(int, at.split(","))}
        return sorted(ranks | ({*self._run.made.guilty} if name == "restart" else set()))

    def start(self) -> None:
        made = self._run.made
        train = ["train.py"]
        torchrun = [*TORCHRUN, *(["--max-restarts=1"] if made.fault == "restart" else [])]
        local = [*torchrun, "--standalone", f"--nproc-per-node={made.world}"]
        tasks = [str(made.world), PYTHON, *train]
        match made.way:
            case "tee":
                self._launch("job.out", [*local, "--tee", "3", *train])
            case "plain":
                self._launch("job.out", [*local, *train])
            case "files":
                self._launch("job.out", [*local, "--log-dir=log", "--redirects=3", *train])
            case "agents":
                self._start_agents(train)
            case "static":
                port = f"--master-port={self._env['MASTER_PORT']}"
                self._launch("job.out", [*TORCHRUN, port, f"--nproc-per-node={made.world}", *train])
            case "spawn":
                self._launch("job.out", [PYTHON, *train])
            case "shell":
                command = " ".join(f"'{one}'" for one in (PYTHON, *train))
                text = _SHELL.format(world=made.world, command=command, after=_AFTER_FIRST_S)
                self._launch("job.out", ["bash", "-c", text])
            case "mpirun":
                mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--tag-output", "-np"]
                self._launch("job.out", [*mpirun, *tasks])
            case "srun":
                end = "--kill-on-bad-exit=1" if made.world % 2 else "--wait=15"
                limit = ["--time=1"] if made.fault == "time limit" else []
                srun = ["srun", "--label", f"-N{min(2, made.world - 1)}", "--overcommit", end]
                self._launch("slurm-17.out", [*srun, *limit, f"-J{made.name}", "-n", *tasks])

    def _start_agents(self, train: list[str]) -> None:
        half = str(self._run.made.world // 2)
        conf = ["--rdzv-conf=join_timeout=15"] if self._run.fault.name == "no second host" else []
        for host in range(1 if conf else 2):
            torchrun = [*TORCHRUN, "--nnodes=2", f"--nproc-per-node={half}", "--rdzv-backend=c10d"]
            where = [f"--rdzv-endpoint=127.0.0.1:{self._env['MASTER_PORT']}", "--rdzv-id=17", *conf]
            self._launch(f"host{host}.out", [*torchrun, *where, "--tee=3", *train])
            if not host:
                time.sleep(3)  # the first one has the store, and the lower ranks

    def _launch(self, log: str, command: list[str]) -> None:
        with (self._folder / log).open("wb") as output:
            self._started.append(
                subprocess.Popen(
                    command, cwd=self._folder, env=self._env, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                )
            )  # fmt: skip

    def watch(self) -> None:
        """Waits for the end, and does what someone beside the job does."""
        made, name = self._run.made, self._run.fault.name
        end = time.monotonic() + _GRACE_S + min(60, self._run.fault.timeout_s)
        match name:
            case "cancelled" | "second host dies":
                self._wait(lambda: len([*self._signs.glob("began.*")]) == made.world, end)
                time.sleep(0.5)
                self._interrupt()
            case "hang, py-spy":
                self._wait(lambda: any(self._signs.glob("struck.*")), end)
                time.sleep(3)
                for rank, pid in self._pids("began"):
                    done = subprocess.run(
                        [SPY, "dump", "--pid", str(pid)], capture_output=True, check=False
                    )
                    (self._folder / f"stacks-rank{rank}.txt").write_bytes(done.stdout)
        self._wait(lambda: all(one.poll() is not None for one in self._started), end)

    def _interrupt(self) -> None:
        if self._run.fault.name == "second host dies":
            pids = dict(self._pids("began"))
            self._started[1].kill()
            for rank in self._run.made.guilty:
                os.kill(pids[rank], signal.SIGKILL)
        elif self._run.made.way == "srun":
            command = ["scancel", f"--name={self._run.made.name}"]
            subprocess.run(command, env=self._env, check=True)
        else:
            self._started[0].terminate()

    def _pids(self, sign: str) -> Iterator[tuple[int, int]]:
        for path in sorted(self._signs.glob(f"{sign}.*")):
            with suppress(ValueError):
                yield int(path.suffix[1:]), int(path.read_text())

    def _wait(self, done: Callable[[], bool], end: float) -> None:
        while not done():
            if time.monotonic() > end:
                raise Failed("the job did not end in time")
            time.sleep(0.1)

    def clean(self) -> None:
        """Ends what is left of the job."""
        for one in self._started:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").readlink() == self._folder:
                    os.kill(int(process.name), signal.SIGKILL)
