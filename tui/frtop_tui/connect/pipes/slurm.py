"""`slurm:JOBID`: the hosts of a Slurm job, reached by one step of srun over all of them.

A new launcher is a module like this one, and a line each in `__init__.py` and in `places.py`.

From the manuals of Slurm:

* squeue, `-o %N`: "List of nodes allocated to the job or job step."
* srun, `--overlap`: "Specifying --overlap allows steps to share all resources (CPUs, memory, and
  GRES) with all other steps."
* srun, `--label`: "Prepend task number to lines of stdout/err."
* srun, `--input all`: "stdin is broadcast to all remote tasks. This is the default behavior."
* srun, `--kill-on-bad-exit=0`: one task that ends does not end the others.

Without `--unbuffered`, which gives the tasks a pseudo terminal, srun passes lines on as they come;
it cuts those longer than 1,024 bytes, so the other end writes short ones. If srun refuses (it is
not installed, the cluster forbids overlapping steps), we reach each host over ssh.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from frtop_tui.connect.endpoints import PipeEndpoint
from frtop_tui.connect.pipes.lookup import output_of
from frtop_tui.connect.pipes.ssh_command import ssh_endpoint
from frtop_tui.errors import FrtopError, NoJob, Unreachable, UsageError
from frtop_tui.job.naming import unfolded_hosts

PREFIX: Final = "slurm:"
MAX_NODES: Final = 4096
_JOB: Final = re.compile(r"[0-9]{1,12}([_+][0-9]{1,12})?")
_NODE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_ELSEWHERE: Final = (
    "run frtop on a log-in node of the cluster, or name the hosts: --ssh 'node[0-7]'"
)


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A place with many hosts."""

    job: str

    @property
    def name(self) -> str:
        """As the operator wrote it."""
        return PREFIX + self.job

    doing = "asking squeue for its hosts"

    def find(self) -> list[PipeEndpoint]:
        """Asks squeue; blocks.

        Raises:
            FrtopError: the job is unknown or does not run, or squeue cannot be asked.
        """
        nodes = self._nodes()
        step = step_command(self.job, len(nodes))
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(_by_ssh, nodes))
        return [
            PipeEndpoint(
                host=node,
                commands=(step, *(ssh.commands if ssh is not None else ())),
                shown=f"srun {self.job}",
                task=task,
                crowded=ssh is not None and ssh.crowded,
                through=ssh.through if ssh is not None else "",
            )
            for task, (node, ssh) in enumerate(zip(nodes, found, strict=True))
        ]

    def _nodes(self) -> list[str]:
        said = output_of(("squeue", "-j", self.job, "-h", "-o", "%N"), _ELSEWHERE)
        folded = ",".join(filter(None, (line.strip() for line in said.splitlines())))
        if not folded:
            raise NoJob(
                f"Slurm job {self.job} has no hosts: it is still queued, or has ended",
                f"squeue -j {self.job} shows its state",
            )
        try:
            nodes = unfolded_hosts(folded, MAX_NODES)
        except ValueError as error:
            raise _nonsense(folded) from error
        if not all(map(_NODE.fullmatch, nodes)):
            raise _nonsense(folded)
        return nodes


def parse(spec: str) -> SlurmJob:
    """Reads `slurm:JOBID`; raises `UsageError`."""
    job = spec.removeprefix(PREFIX)
    if not _JOB.fullmatch(job):
        raise UsageError(f"{job!r} is not the number of a Slurm job", "--ssh slurm:123456")
    return SlurmJob(job)


def step_command(job: str, nodes: int) -> tuple[str, ...]:
    """One task with a shell on each host of the job."""
    return (
        "srun", "--overlap", f"--jobid={job}", f"--nodes={nodes}", f"--ntasks={nodes}",
        "--ntasks-per-node=1", "--label", "--kill-on-bad-exit=0", "--input=all", "--chdir=/",
        "sh",
    )  # fmt: skip


def _by_ssh(node: str) -> PipeEndpoint | None:
    with suppress(FrtopError):
        return ssh_endpoint(node)
    return None


def _nonsense(folded: str) -> FrtopError:
    return Unreachable(f"squeue did not print a list of hosts: {folded[:80]!r}", _ELSEWHERE)
