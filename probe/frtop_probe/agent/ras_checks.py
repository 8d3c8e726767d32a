"""What is looked at before NCCL's RAS is asked: who listens, and who makes communicators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.snapshots import SnapshotTaker
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.ras.communicator_setup import (
    NOT_SEEN,
    groups_in_first_op,
    maker_in_ops,
    maker_in_stacks,
    message_in_stacks,
)
from frtop_probe.ras.listeners import Listener, listeners_on, owners
from frtop_probe.ras.settings import RasSettings

STACKS_S: Final = 3.0
MAX_NAMED: Final = 8
OTHER_HOSTS: Final = "ranks on other hosts, except by what the screen knows of them"


@dataclass(frozen=True, slots=True)
class PortCheck:
    """Where RAS is to be asked, or why not: `error` as in `wire.RasResponse`."""

    hosts: tuple[str, ...]
    port: int
    checked: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    error: str = ""
    text: str = ""

    @property
    def address(self) -> str:
        """The first address, as text."""
        if not self.hosts:
            return f"port {self.port}"
        host = self.hosts[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SetupCheck:
    """Whether a rank of this host makes a communicator, "" for none seen."""

    making: str = ""
    checked: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def check_port(settings: RasSettings, rank: TrackedRank, job: Sequence[TrackedRank]) -> PortCheck:
    """Finds the addresses on which ranks of the job listen, by the kernel's tables."""
    port = settings.port
    listeners = listeners_on(port)
    if not listeners:
        text = (
            f"nobody listens on port {port} on this host: RAS of process {rank.pid} is off, not"
            " started yet, or at another NCCL_RAS_ADDR (its /etc/nccl.conf is not read)"
        )
        return PortCheck((), port, error="closed", text=f"{text}; the job's NCCL log names it")
    holders = owners(one.inode for one in listeners)
    ours = {one.pid for one in job}
    own = [one for one in listeners if holders.get(one.inode, frozenset()) & ours]
    if own:
        return _among(own, listeners, holders, ours, port)
    unknown = [one for one in listeners if one.inode not in holders]
    if unknown and settings.hosts:
        hosts = tuple(h for h in settings.hosts if h in {one.host for one in unknown})
        if hosts:
            return PortCheck(hosts, port, unchecked=(f"whose sockets listen on port {port}",))
    pids = sorted({pid for found in holders.values() for pid in found})[:MAX_NAMED]
    text = (
        f"port {port} is not this job's: processes {', '.join(map(str, pids)) or 'unknown'} have it"
    )
    return PortCheck((), port, error="closed", text=f"{text}; the job's NCCL log names its own")


def _among(
    own: Sequence[Listener],
    listeners: Sequence[Listener],
    holders: dict[int, frozenset[int]],
    ours: set[int],
    port: int,
) -> PortCheck:
    """The job's own addresses, unless others listen there: the kernel may pick them."""
    hosts = tuple(dict.fromkeys(one.host for one in own))
    beside = [one for one in listeners if one.host in hosts and one not in own]
    foreign = sorted({pid for one in beside for pid in holders.get(one.inode, ())} - ours)
    if foreign:
        text = (
            f"another job's processes ({', '.join(map(str, foreign[:MAX_NAMED]))}) listen on port"
            f" {port}, too: the kernel picks who is asked, and the risk may be theirs"
        )
        next_step = "set another NCCL_RAS_ADDR for each job next time"
        return PortCheck(hosts, port, error="shared", text=f"{text}; {next_step}")
    unchecked = (f"whose other sockets listen on port {port}",) if beside else ()
    count = len({pid for one in own for pid in holders[one.inode]} & ours)
    checked = (f"port {port}: {count} ranks of this job listen there, and no other process",)
    return PortCheck(hosts, port, () if unchecked else checked, unchecked)


async def check_setup(job: Sequence[TrackedRank], taker: SnapshotTaker) -> SetupCheck:
    """Looks for a rank of this host that makes a communicator: in its ops, then in its stacks."""
    unchecked = [OTHER_HOSTS, NOT_SEEN]
    first: dict[int, tuple[str, ...]] = {}
    for rank in job:
        full = rank.full()
        if maker := maker_in_ops(full.pending or ()):
            return SetupCheck(_sentence(rank, maker))
        if not full.groups:
            if full.identity is None or full.identity.books or full.identity.prepared:
                return SetupCheck(
                    f"process {rank.pid} has no process group yet, or makes its first"
                )
            unchecked.append(
                f"the process groups of process {rank.pid}: its books are not readable"
            )
        fronts = {one.group: one for one in full.group_progress}
        first[rank.key] = groups_in_first_op(full.groups, fronts)
    request = wire.SnapshotRequest(0, tuple(rank.key for rank in job))
    snapshots = await taker.take(request, job, STACKS_S)
    read = 0
    for rank, snapshot in zip(job, snapshots, strict=True):
        threads = tuple(thread for dump in snapshot.dumps for thread in dump.threads)
        if not threads:
            reason = next((dump.error for dump in snapshot.dumps if dump.error), "none taken")
            unchecked.append(f"the stacks of process {rank.pid} ({reason})")
            continue
        read += 1
        if maker := maker_in_stacks(threads, first[rank.key]):
            return SetupCheck(_sentence(rank, maker))
        if message := message_in_stacks(threads):
            unchecked.append(
                f"whether {message} of process {rank.pid} makes a communicator of two ranks"
            )
    checked = (f"pending calls and groups of {len(job)} ranks", f"stacks of {read} ranks")
    return SetupCheck("", checked, tuple(unchecked))


def _sentence(rank: TrackedRank, maker: str) -> str:
    return f"process {rank.pid} may be making a communicator: it is in {maker}"
