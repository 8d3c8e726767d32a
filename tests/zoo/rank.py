"""What programs of the zoo have in common: how a rank joins, steps, issues its ops and waits.

A program shows its fault only:

    CASE = fault("not_entered", 2, "sleeping")

    job = join()
    for odd in job.steps(2):
        if odd:
            time.sleep(3600)
        job.all_reduce()
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, fault, slow, truth

__all__ = ["STEP_S", "Case", "Job", "fault", "job_before_init", "join", "slow", "truth"]
TIMEOUT_S: Final = 600
STEP_S: Final = 0.02
_BACKEND: Final = os.environ.get("ZOO_BACKEND", "gloo")
"""Or `nccl`: the kit for one GPU (docs/nccl.md) runs some programs so."""


@dataclass(slots=True)
class Job:
    """One rank of a running program. With `late`, ops are asynchronous and the rank waits late."""

    rank: int
    world: int
    folder: Path
    late: bool
    slowly: bool
    _works: list[Any] = field(default_factory=list)
    _gradient: torch.Tensor | None = None

    def steps(self, *ranks: int, at: int = 40, count: int = 100) -> Iterator[bool]:
        """Yields for each step whether the fault is to happen in it now, and marks it then.

        The fault is that of these ranks, of every rank if none is named.
        """
        for step in range(count):
            time.sleep(STEP_S)
            odd = step == at and (not ranks or self.rank in ranks)
            if odd:
                self.mark_fault()
            yield odd

    def train(self, count: int) -> None:
        """Trains for some steps, with one op in each and without a fault."""
        for _ in range(count):
            time.sleep(STEP_S)
            self.all_reduce()

    def all_reduce(
        self, tensor: torch.Tensor | None = None, group: dist.ProcessGroup | None = None
    ) -> None:
        """Reduces a gradient, and waits for it as the mode says."""
        if tensor is None:
            if self._gradient is None:
                self._gradient = torch.ones(1000)
            tensor = self._gradient
        self.call(dist.all_reduce, tensor, group=group)

    def call(self, op: Callable[..., Any], /, *arguments: Any, **options: Any) -> None:
        """Calls an op of torch, and waits for it as the mode says."""
        self.keep(op(*arguments, **options, async_op=self.late))
        self.wait()

    def send(self, tensor: torch.Tensor, peer: int) -> None:
        """Sends a copy, and waits for it as the mode says."""
        if self.late:
            self.keep(dist.isend(tensor.clone(), peer))
            self.wait()
        else:
            dist.send(tensor.clone(), peer)

    def receive(self, tensor: torch.Tensor, peer: int) -> None:
        """Receives, as the mode says."""
        if self.late:
            self.keep(dist.irecv(tensor, peer))
            self.wait()
        else:
            dist.recv(tensor, peer)

    def keep(self, work: Any) -> None:
        """Stores the handle of an asynchronous op; None for a synchronous op."""
        if work is not None:
            self._works.append(work)

    def wait(self) -> None:
        """Waits at the end of a step for all stored handles, and for the device if there is one."""
        works, self._works = self._works, []
        for work in works:
            work.wait()
        if _BACKEND == "nccl":
            torch.cuda.synchronize()

    def mark_fault(self) -> None:
        """Marks the time of the fault, or of a control's event; the first rank's mark counts."""
        with suppress(FileExistsError), (self.folder / "fault").open("x") as file:
            file.write(str(time.monotonic_ns()))

    def paced(self) -> Iterator[bool]:
        """Yields for each step whether it is the faulty one.

        At full speed there are thousands of steps; slowly, there are some of up to 1 s each.
        """
        steps, odd = (100, 15) if self.slowly else (10_000_000, 2000)
        for step in range(steps):
            if self.slowly:
                time.sleep(0.2 if step < 12 else 1.0)
            if step == odd:
                self.mark_fault()
            yield step == odd

    def pipe(self, name: str) -> Path:
        """Creates a pipe that is open for writing but never written: a read of it never ends."""
        path = self.folder / name
        with suppress(FileExistsError):
            os.mkfifo(path)
        global _open_pipe  # noqa: PLW0603 - stays open until this process ends
        _open_pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return path

    def wait_for_all(self, name: str, ranks: int | None = None) -> None:
        """Waits for the other ranks without an op, by files in the job's folder."""
        (self.folder / f"{name}.{self.rank}").touch()
        while len(list(self.folder.glob(f"{name}.*"))) < (ranks or self.world):
            time.sleep(0.01)


_open_pipe = -1


def job_before_init() -> Job:
    """Returns the job before `init_process_group`, for programs about joining."""
    torch.set_num_threads(1)
    return Job(
        int(os.environ["RANK"]),
        int(os.environ["WORLD_SIZE"]),
        Path(os.environ["ZOO_FOLDER"]),
        os.environ["ZOO_MODE"].startswith("late"),
        os.environ["ZOO_MODE"].endswith("slowly"),
    )


def join(timeout_s: float = TIMEOUT_S) -> Job:
    """Joins the default group, and starts a thread that dumps Flight Recorder on request.

    Where nobody prepared the job and frtop watches it from its start, waits until it is seen.
    """
    job = job_before_init()
    if _BACKEND == "nccl":
        _use_one_gpu()
    dist.init_process_group(_BACKEND, timeout=timedelta(seconds=timeout_s))
    while "ZOO_SEEN" in os.environ and not (job.folder / "seen").exists():
        time.sleep(STEP_S)
    pipe = int(os.environ["ZOO_DUMP"])
    threading.Thread(target=_dump, args=(job, pipe), daemon=True, name="dump").start()
    return job


def _use_one_gpu() -> None:
    """Makes all tensors on the one GPU that all ranks share, but for those of forked workers."""
    torch.cuda.set_device(0)
    torch.set_default_device("cuda")
    os.register_at_fork(after_in_child=lambda: torch.set_default_device("cpu"))


def _dump(job: Job, pipe: int) -> None:
    """Waits until the other end of the pipe is closed, then writes a dump as torch would."""
    select.select([pipe], [], [])
    c10d: Any = import_module("torch._C._distributed_c10d")
    folder = job.folder / "fr"
    folder.mkdir(exist_ok=True)
    part = folder / f".{job.rank}"
    part.write_bytes(c10d._dump_fr_trace(True, False, False))
    part.rename(folder / f"nccl_trace_rank_{job.rank}")
