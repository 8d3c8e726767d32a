"""What is known of this host and of the ranks on it: plain values, read elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from frtop_probe import device_settings
from frtop_probe.proc.process_rights import ProcessRights
from frtop_probe.proc.ptrace_refusal import ProgramFlaw

SETTINGS: Final = (
    *device_settings.READ,
    "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
)
"""Variables of torch and NCCL that decide what is seen of their ops. No other one is read."""

Result = Literal["ok", "refused", "killed", "failed", "missing", "not tried"]


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of something that was tried on a process of our own.

    Attributes:
        result: "killed" if the kernel ended whoever tried it.
        detail: a few words, such as the name of the error.
    """

    result: Result = "not tried"
    detail: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it worked, or nobody knows."""
        return self.result in ("ok", "not tried")


@dataclass(frozen=True, slots=True)
class TorchFiles:
    """An installation of torch, read from its files.

    Attributes:
        version: as in torch/version.py; "" where it is not readable.
        library: path of the library with c10d's classes, as the process sees it.
        exports: c10d's classes are among the exported symbols; None where nobody could look.
        locals: the Flight Recorder's symbol is in the table that `strip` removes; None likewise.
    """

    version: str = ""
    library: str = ""
    exports: bool | None = None
    locals: bool | None = None


@dataclass(frozen=True, slots=True)
class RingFacts:
    """One Flight Recorder ring of a rank: its capacity, or why it is not readable."""

    kind: str
    capacity: int = 0
    recorded: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One rank that runs here.

    Attributes:
        rank: global rank; None where it is not known.
        label: how it is named, where ranks of several jobs are here; "" for by its rank.
        own: it is of this user: others are not looked at.
        memory: why its memory is not readable; "" if it is.
        c10d: why c10d's state is not readable; "" if it is.
        settings: those of `SETTINGS` that are set in it now, or were when it began.
        settings_unread: why they are not known; "" if they are.
        shared_memory: device number of its /dev/shm; 0 where unknown.
        prepared: frtop's recorder is in it.
        no_return: reading it took longer than its limit.
        program_flaw: of the file of its program, which keeps it from being dumpable.
    """

    pid: int
    rank: int | None = None
    own: bool = True
    rights: ProcessRights | None = None
    python: str = ""
    program: str = ""
    program_flaw: ProgramFlaw = ""
    torch: TorchFiles | None = None
    memory: str = ""
    c10d: str = ""
    groups: int = 0
    backends: tuple[str, ...] = ()
    rings: tuple[RingFacts, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    settings_unread: str = ""
    shared_memory: int = 0
    prepared: bool = False
    no_return: bool = False
    label: str = ""

    @property
    def name(self) -> str:
        """`rank 3`, or `pid 77` where that is not known or not enough."""
        return self.label or f"pid {self.pid}" if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """A folder in which files are put: is it there, writable, how large, may programs run there.

    Attributes:
        size, free: bytes; free is what this user may use.
        error: why nothing is known; "" if it is.
    """

    path: str
    exists: bool = False
    writable: bool = False
    size: int = 0
    free: int = 0
    noexec: bool = False
    device: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """A program that takes stacks.

    Attributes:
        path: "" if there is none.
        machine: e_machine of its ELF header; 0 if it is a script or not readable.
        noexec: it lies on a file system on which no program may be run.
        executable: by its mode.
        mount: the mount point of that file system.
        trial: what came of running it on a process of our own.
        sent: it was brought along, and lies in memory.
    """

    name: str
    path: str = ""
    machine: int = 0
    noexec: bool = False
    executable: bool = False
    mount: str = ""
    trial: Trial = Trial()
    sent: bool = False


@dataclass(frozen=True, slots=True)
class ProcFacts:
    """How /proc is mounted here: `hidepid` as written ("" for off); `subset` "pid" hides the rest.

    `own` is whether it is of our pid namespace; None where unknown.
    """

    mounted: bool = True
    hidepid: str = ""
    subset: str = ""
    own: bool | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """This host, and the process that asks.

    Attributes:
        python: version of our own Python; `program` is its path.
        machine: e_machine of our own program.
        yama: content of kernel.yama.ptrace_scope; "" without Yama.
        read_memory, vm_readv, ptrace, kcmp: calls tried on a process of our own that is not our
            child, as a rank is not.
        memory_file: running a program out of memory (memfd), as an archive of ours does.
        settings: of `SETTINGS`, those set here: for a job that is started from here.
        job_python: the Python that a job would have; `job_torch` the torch in it.
        by_shell: nothing of frtop is installed here: it was brought along through a shell.
        nvml: one reading of NVIDIA's GPUs, their number as its detail; "missing" without a
            binding. None where there is no driver of NVIDIA's.
    """

    name: str
    rights: ProcessRights
    python: str = ""
    program: str = ""
    machine: int = 0
    yama: str = ""
    proc: ProcFacts = ProcFacts()
    read_memory: Trial = Trial()
    vm_readv: Trial = Trial()
    ptrace: Trial = Trial()
    kcmp: Trial = Trial()
    memory_file: Trial = Trial()
    shared_memory: PlaceFacts = PlaceFacts("/dev/shm")  # noqa: S108 - looked at, not written to
    temporary: PlaceFacts = PlaceFacts("/tmp")  # noqa: S108 - the same
    folder: str = ""
    folder_problem: str = ""
    tools: tuple[ToolFacts, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    job_python: str = ""
    job_torch: TorchFiles | None = None
    by_shell: bool = False
    nvml: Trial | None = None


@dataclass(frozen=True, slots=True)
class OtherRanks:
    """Ranks of another user, which are counted and not looked at."""

    user: str
    uid: int
    ranks: int


@dataclass(frozen=True, slots=True)
class SearchFacts:
    """What a search for ranks brought; `problem` says why there was none.

    Attributes:
        job: name of the job, or of several.
        left_out: ranks that were found and not read.
        searched: whether anybody looked.
    """

    ranks: tuple[RankFacts, ...] = ()
    others: tuple[OtherRanks, ...] = ()
    job: str = ""
    problem: str = ""
    left_out: int = 0
    searched: bool = True


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """How screens and agents of this user would meet.

    Attributes:
        key_problem, key_step: what is wrong with the key, and the next step; "" if nothing is.
        key_missing: there is none yet, and frtop makes one when it is needed here.
        key_path: of the key file.
        agent_pid: of the agent of this host; 0 if none runs.
        agent_state: letter of its state.
        agent_version, version: of the agent, and ours.
        agent_reach: its address is in our network namespace.
        agent_port: as its card says.
        switched_off: names of variables, set to 0, that keep agents from starting or searching.
        port: first port that an agent would try; `free_port` the first that is free, 0 for none.
        packet_filters: names of tables of a packet filter that are loaded; may be unknown.
    """

    key_path: str = ""
    key_problem: str = ""
    key_step: str = ""
    key_missing: bool = False
    agent_pid: int = 0
    agent_state: str = ""
    agent_version: str = ""
    agent_reach: bool = True
    agent_port: int = 0
    version: str = ""
    switched_off: tuple[str, ...] = ()
    port: int = 0
    free_port: int = 0
    packet_filters: tuple[str, ...] = ()


def document(host: HostFacts, search: SearchFacts) -> dict[str, Any]:
    """Returns what a host sends: values that JSON can hold."""
    return {"host": asdict(host), "search": asdict(search)}
