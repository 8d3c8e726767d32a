"""Facts about one process, and the result of a search."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from frtop_probe.proc.child_process import AS_USER

Role = Literal[
    "rank", "launcher", "data_worker", "resource_tracker", "fork_server", "compile_worker", "other"
]
GROUP_THREADS: Final = re.compile(r"gloo_|pt_(gloo|nccl|rccl|xccl|hccl|ucc|mpi)_")
"""Start of the names of threads that exist only in a process with its own backend.

A forked child does not have them: a fork copies only the calling thread.
"""
STORE_THREAD: Final = "pt_tcpstore"
"""Start of the name of the thread that serves the store; torchrun's agent may also have it."""
TORCH_THREADS: Final = "pt_"
DATA_WORKER: Final = "pt_data_worker"

SCAN_FAILED: Final = "no search for jobs: it failed"


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process as /proc shows it.

    Attributes:
        start_ticks: start time since boot in clock ticks; with `pid` it names a process.
        comm: kernel name of the main thread, at most 15 characters.
        program: file name of the executable; "" if it is not readable.
        thread_names: kernel names of its threads.
        argv: the command line, bounded; a process title is its first and only word.
        environ: the variables of `claims.NAMES` when the program started.
        run_time_environ: the same variables in memory now, if they were read.
        torch: whether libtorch is mapped; None if nobody looked, or if that is not readable.
        inner_pid: pid in its own pid namespace; `pid` if that is ours.
        pid_namespace, net_namespace: inodes of the namespaces; 0 if not readable.
        unread: what could not be read, and why.
    """

    pid: int
    start_ticks: int
    parent: int
    uid: int
    comm: str
    session: int = 0
    threads: int = 1
    program: str = ""
    thread_names: frozenset[str] = frozenset()
    argv: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    run_time_environ: Mapping[str, str] = field(default_factory=dict)
    torch: bool | None = None
    inner_pid: int = 0
    pid_namespace: int = 0
    net_namespace: int = 0
    unread: tuple[str, ...] = ()

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment; values set at run time win."""
        return {**self.environ, **self.run_time_environ}

    @property
    def is_python(self) -> bool:
        return self.program.startswith(("python", "pypy")) or (
            not self.program and self.comm.startswith("python")
        )

    @property
    def has_group_threads(self) -> bool:
        return any(GROUP_THREADS.match(name) for name in self.thread_names)

    @property
    def has_store_thread(self) -> bool:
        return any(name.startswith(STORE_THREAD) for name in self.thread_names)

    @property
    def has_torch(self) -> bool:
        return self.torch is True or any(
            name.startswith(TORCH_THREADS) or GROUP_THREADS.match(name)
            for name in self.thread_names
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process of a job.

    Attributes:
        rank, world_size, local_rank: None if neither launcher nor title gives it; the c10d state
            may have it later.
        job: identity of the world: if possible, the same for all its ranks on all hosts.
        prepared: it has frtop's recorder, or its environment starts the recorder.
        ring_folder: FRTOP_DIR in its environment; "" if not set.
        settings: what else it says to frtop there.
        ended: number of the world's ranks that have ended on this host; 0 unless its launcher
            lives and started all of them here.
        reasons: what could not be read.
    """

    pid: int
    start_ticks: int
    role: Role
    rank: int | None
    world_size: int | None
    local_rank: int | None
    job: str
    prepared: bool
    parent: int = 0
    inner_pid: int = 0
    pid_namespace: int = 0
    ring_folder: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    ended: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundJob:
    """The processes of one world on this host.

    Attributes:
        identity: as in `Candidate.job`.
        name: file name of the script, or name of the module or of the inference engine.
        launcher: the program that started it: "torchrun", "mp.spawn", "srun", ...; "" if unknown.
        launcher_pid: pid of that process, if it runs on this host.
        prepared: all its ranks are prepared.
        ranks: ordered by rank, then pid.
        helpers: data workers and other helpers of the ranks.
    """

    identity: str
    name: str
    launcher: str
    launcher_pid: int | None
    uid: int
    prepared: bool
    ranks: tuple[Candidate, ...]
    helpers: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Processes of another user: counted by their public names, but not inspected."""

    uid: int
    user: str
    processes: int
    ranks: int

    @property
    def text(self) -> str:
        ranks = f"{self.ranks} rank{'' if self.ranks == 1 else 's'}"
        return f"{ranks} of user {self.user}: not looked at"

    def note(self, *, through_shell: bool = False) -> str:
        """Returns the text with the next step; `through_shell` if a shell reached this host."""
        as_root = os.geteuid() == 0 or AS_USER in os.environ
        return f"{self.text}; {advice(self.user, as_root=as_root, through_shell=through_shell)}"


def advice(user: str, *, as_root: bool, through_shell: bool = False) -> str:
    """Returns how root, or another user, can see the ranks of `user`."""
    option = "" if user == "root" else f" --user {user}"
    if not as_root:
        return (
            f"{user} can admit you with `frtop key admit` and what `frtop key` prints here;"
            f" root can look: `frtop{option}`"
        )
    if through_shell:
        return f"the same command {f'with{option}' if option else 'without --user'} shows them"
    return f"frtop{option}"


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of one scan."""

    jobs: tuple[FoundJob, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()
    reasons: tuple[str, ...] = ()
