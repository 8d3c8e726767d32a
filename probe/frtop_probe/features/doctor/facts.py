"""What is known about this host and its ranks: plain values, read elsewhere."""

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
"""Variables of torch and NCCL that decide what is visible of their ops. Doctor reads no others."""

Result = Literal["ok", "refused", "killed", "failed", "missing", "not tried"]


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of trying something on a process that doctor started.

    Attributes:
        result: "killed" if the kernel killed the process that tried.
        detail: a few words, such as the name of the error.
    """

    result: Result = "not tried"
    detail: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it worked, or may work."""
        return self.result in ("ok", "not tried")


@dataclass(frozen=True, slots=True)
class TorchFiles:
    """An installation of torch, read from its files.

    Attributes:
        version: as in torch/version.py; "" if that is unreadable.
        library: path of the library with c10d's classes, as the process sees it.
        exports: whether it exports the symbols of c10d's classes; None if unknown.
        locals: whether the Flight Recorder's symbol is in the table that `strip` removes; likewise.
    """

    version: str = ""
    library: str = ""
    exports: bool | None = None
    locals: bool | None = None


@dataclass(frozen=True, slots=True)
class RingFacts:
    """One Flight Recorder ring of a rank: its capacity, or why it is unreadable."""

    kind: str
    capacity: int = 0
    recorded: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One rank that runs here.

    Attributes:
        rank: global rank; None if unknown.
        label: its name where ranks of several jobs run here; "" to name it by its rank.
        own: it belongs to this user; doctor does not look at other users' ranks.
        memory: why its memory is unreadable; "" if readable.
        c10d: why c10d's state is unreadable; "" if readable.
        settings: its values of `SETTINGS`: now, or when it started.
        settings_unread: why they are unknown; "" if known.
        shared_memory: device number of its /dev/shm; 0 if unknown.
        prepared: frtop's recorder runs in it.
        no_return: reading it took longer than its limit.
        program_flaw: why its program file keeps it from being dumpable.
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
        """`rank 3`; `pid 77` if the rank is unknown or ambiguous."""
        return self.label or f"pid {self.pid}" if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """A folder for files: does it exist, is it writable, how large is it, may programs run there.

    Attributes:
        size, free: in bytes; `free` is what this user may use.
        error: why nothing is known about it; "" otherwise.
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
        path: "" if it is not installed.
        machine: e_machine of its ELF header; 0 if it is a script or unreadable.
        noexec: its file system allows no program to run.
        executable: whether its mode says so.
        mount: the mount point of that file system.
        trial: the result of running it on a process that doctor started.
        sent: frtop sent it here, and it is in memory only.
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

    `own`: whether it shows our pid namespace; None if unknown.
    """

    mounted: bool = True
    hidepid: str = ""
    subset: str = ""
    own: bool | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """This host, and doctor's own process.

    Attributes:
        python: version of our own Python; `program` is its path.
        machine: e_machine of our own program.
        yama: content of kernel.yama.ptrace_scope; "" without Yama.
        read_memory, vm_readv, ptrace, kcmp: calls tried on a process that doctor started but,
            as with a rank, is not its child.
        memory_file: running a program from memory (memfd), as frtop's archive does.
        settings: the values of `SETTINGS` here, which a job started from here inherits.
        job_python: the Python that a job would use; `job_torch`: the torch in it.
        by_shell: frtop is not installed here: it was sent through a shell.
        nvml: one reading of NVIDIA's GPUs, with their number as its detail; "missing" without a
            binding. None without NVIDIA's driver.
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
    """Ranks of another user: doctor only counts them."""

    user: str
    uid: int
    ranks: int


@dataclass(frozen=True, slots=True)
class SearchFacts:
    """The result of a search for ranks; `problem` says why there was no search.

    Attributes:
        job: name of the job or jobs.
        left_out: number of ranks that were found but not read.
        searched: whether doctor searched.
    """

    ranks: tuple[RankFacts, ...] = ()
    others: tuple[OtherRanks, ...] = ()
    job: str = ""
    problem: str = ""
    left_out: int = 0
    searched: bool = True


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """How this user's screens and agents would connect.

    Attributes:
        key_problem, key_step: what is wrong with the key, and the next step; "" if nothing.
        key_missing: there is no key yet; frtop makes one here when it needs one.
        key_path: path of the key file.
        agent_pid: pid of this host's agent; 0 if none runs.
        agent_state: letter of its process state.
        agent_version, version: the agent's, and ours.
        agent_reach: whether its address is in our network namespace.
        agent_port: the port on its card.
        switched_off: variables set to 0 that keep agents from starting or searching.
        port: first port that an agent would try; `free_port`: the first free port, 0 for none.
        packet_filters: names of the packet filter's loaded tables, as far as known.
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
    """Returns what a host sends, as JSON values."""
    return {"host": asdict(host), "search": asdict(search)}
