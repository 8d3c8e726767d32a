"""What frtop's own parts need: key, agent, ports, room for rings, archive. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from shlex import quote
from typing import Final

from frtop_probe.features.doctor.facts import HostFacts, SearchFacts, ServiceFacts
from frtop_probe.features.doctor.tier import MEMFD, Tier, judged, set_variable
from frtop_probe.proc.ptrace_refusal import Change, Obstacle, is_contained
from frtop_probe.ring.layout import FULL, SMALL

RANKS: Final = 8
"""Ranks of a host where none runs yet."""
MADE_LATER: Final = (
    "frtop makes a key when it first looks at a job here, and the agent beside rank 0 does; where"
    " homes are not shared, copy it to the other hosts"
)
_OWN_FOLDER: Final = 'export FRTOP_DIR="$(mktemp -d)"    # one for all ranks of a host'
_CHMOD: Final = re.compile(r"chmod 700 [\w./+@%-]+", re.ASCII)
NO_AGENT: Final = "FRTOP_AGENT"
NO_UNPREPARED: Final = "FRTOP_UNPREPARED"
_SWITCHED_OFF: Final = {
    NO_AGENT: "frtop starts no agent",
    NO_UNPREPARED: "agents do not search for ranks without a recorder",
}
_MEGABYTE: Final = 1_000_000
_SHM_POD: Final = (
    "spec: {volumes: [{name: shm, emptyDir: {medium: Memory}}],"
    " containers: [{name: NAME, volumeMounts: [{name: shm, mountPath: /dev/shm}]}]}"
)


def recorder(host: HostFacts, search: SearchFacts) -> Tier:
    """Room for the rings of `frtop run`, where the agent sees them."""
    ranks = len(search.ranks) + search.left_out or RANKS
    obstacles = [*_of_folder(host), *_of_room(host, ranks), *_of_containers(host, search)]
    place = host.shared_memory
    return judged(
        "recorder",
        "recorder",
        tells="with `frtop run`: reduce ops, lines, durations, usual waits, exceptions, tensors",
        lost="rings go to /tmp (a disk), hold 512 ops instead of 8,192, or are not visible",
        obstacles=obstacles,
        basis=f"{place.path} has room for the rings of {place.free // FULL.size:,} ranks",
        ranks=len(search.ranks),
    )


def key(service: ServiceFacts) -> Tier:
    """The user's key, by which agents and screens recognise each other."""
    obstacles = []
    if service.key_problem:
        step = Change("type", service.key_step)
        code = "no key" if service.key_missing else "key not usable"
        obstacles.append(Obstacle(code, service.key_problem, (step,)))
    return judged(
        "key",
        "key",
        tells="this user's screens and agents recognise each other on all hosts",
        lost="no agent answers, here or on other hosts, until they share one key",
        obstacles=obstacles,
        basis=service.key_path,
        notes=(MADE_LATER,) if service.key_missing else (),
        is_evidence=not service.key_missing,
    )


def agent(service: ServiceFacts) -> Tier:
    pid = service.agent_pid
    obstacles = []
    if pid and service.agent_state in ("T", "t"):
        text = f"the agent (pid {pid}) is stopped and answers nobody"
        obstacles.append(Obstacle("stopped", text, (Change("type", f"kill -CONT {pid}"),)))
    elif pid and _differ(service.agent_version, service.version):
        text = f"the agent (pid {pid}) is frtop {service.agent_version}, this is {service.version}"
        again = f"kill {pid}    # the next frtop, or a prepared rank, starts another"
        obstacles.append(Obstacle("version", text, (Change("type", again),)))
    for name in service.switched_off:
        if not (pid and name == NO_AGENT):
            text = f"{name}=0: {_SWITCHED_OFF[name]}"
            obstacles.append(Obstacle("switched off", text, (Change("type", f"unset {name}"),)))
    return judged(
        "agent",
        "agent",
        tells="all that screens see of this host",
        lost="this host is unreachable, or another version answers",
        obstacles=obstacles,
        basis=f"runs, pid {pid}" if pid else "none runs; frtop starts one",
    )


def _differ(one: str, other: str) -> bool:
    """Whether two versions are known and differ."""
    return bool(one and other) and one != other


def ports(service: ServiceFacts) -> Tier:
    """The agent's two ports, for screens on other hosts."""
    obstacles = list(_of_ports(service))
    number = service.agent_port or service.free_port
    step = f"frtop jobs --connect HOST:{number}"
    notes = [f"only the other host can tell whether a firewall blocks the way: {step}"]
    if service.packet_filters:
        notes.append(f"a packet filter is loaded: {', '.join(service.packet_filters)}")
    basis = f"the agent has {service.agent_port} and the next" if service.agent_port else (
        f"{service.free_port} and the next are free"
    )  # fmt: skip
    return judged(
        "ports",
        "ports",
        tells="screens on other hosts: --connect HOST",
        lost="screens on other hosts; nothing on this host",
        obstacles=obstacles,
        basis=basis,
        notes=notes if number else (),
        is_evidence=False,
    )


def archive(host: HostFacts) -> Tier:
    """Whether frtop can run a program that it sends to a host without frtop."""
    obstacles = []
    text = f"a program cannot be run from memory (memfd: {host.memory_file.detail})"
    if not host.memory_file.is_open and host.by_shell:
        obstacles.append(Obstacle("memfd", text, (Change("type", MEMFD),)))
    elif not host.memory_file.is_open and (host.temporary.noexec or not host.temporary.writable):
        text += f", nor from {host.temporary.path} (noexec, or not writable)"
        changes = (
            Change("type", MEMFD),
            Change("type", f"sudo mount -o remount,exec {quote(host.temporary.path)}"),
        )
        obstacles.append(Obstacle("noexec", text, changes))
    by = f"programs may run in {host.temporary.path}"
    if host.memory_file.result == "ok":
        by = "a program ran from memory (memfd)"
    return judged(
        "archive",
        "archive",
        tells="py-spy from an archive, on hosts without frtop",
        lost="Python stacks on such hosts",
        obstacles=obstacles,
        basis=by,
        is_evidence=False,
    )


def _of_folder(host: HostFacts) -> Iterable[Obstacle]:
    if host.folder_problem:
        text, _, step = host.folder_problem.partition("; ")
        command = _command_in(step)
        changes = (Change("type", command),) if command else ()
        yield Obstacle("folder", text, (*changes, Change("job script", _OWN_FOLDER)))


def _command_in(step: str) -> str:
    """The command at the start of a `FolderError`'s step, which another host may have sent."""
    words = step.partition(", or ")[0]
    return words if _CHMOD.fullmatch(words) else ""


def _of_room(host: HostFacts, ranks: int) -> Iterable[Obstacle]:
    place, need = host.shared_memory, ranks * FULL.size
    path = quote(place.path)
    size = f"{max(64, -(-2 * (place.size - place.free + need) // _MEGABYTE))}m"
    changes = (
        Change("docker run", f"--shm-size={size}"),
        Change("pod spec", _SHM_POD),
        Change("type", f"sudo mount -o remount,size={size} {path}"),
    )
    if not place.exists and is_contained(host.rights):  # where nobody may mount
        instead = Change("docker run", "--ipc=private    # instead of --ipc=none")
        yield Obstacle("no shm", f"there is no {place.path}", (instead, changes[1]))
    elif not place.exists:
        mount = Change("type", f"sudo mkdir -p {path}; sudo mount -t tmpfs shm {path}")
        yield Obstacle("no shm", f"there is no {place.path}", (mount, changes[1]))
    elif not place.writable:
        yield Obstacle(
            "shm", f"{place.path} is not writable for this user",
            (Change("type", f"sudo chmod 1777 {path}"), changes[1]),
        )  # fmt: skip
    elif place.free < need:
        room = "no ring" if place.free < SMALL.size else f"{place.free // _MEGABYTE} MB"
        text = (
            f"{place.path} ({round(place.size / _MEGABYTE)} MB) has room for {room}; the rings of"
            f" {ranks} ranks need {-(-need // _MEGABYTE)} MB"
        )
        yield Obstacle("shm full", text, changes)


def _of_containers(host: HostFacts, search: SearchFacts) -> Iterable[Obstacle]:
    for rank in search.ranks:
        other = rank.shared_memory and rank.shared_memory != host.shared_memory.device
        if rank.prepared and other and host.shared_memory.exists:
            text = f"its {host.shared_memory.path} is its container's own: its ring is hidden here"
            inside = f"nsenter -t {rank.pid} -m -p -n frtop    # or `docker exec`"
            yield Obstacle(
                "private shm", text,
                (Change("docker run", "--ipc=host"), Change("type", inside)), (rank.name,),
            )  # fmt: skip


def _of_ports(service: ServiceFacts) -> Iterable[Obstacle]:
    if service.agent_pid:
        if not service.agent_reach:
            text = "the agent listens only in its container's network"
            line = f"--network=host    # else: -p {service.agent_port}-{service.agent_port + 1}"
            yield Obstacle("network", text, (Change("docker run", line),))
        return
    if service.free_port == service.port:
        return
    if not service.free_port:
        text = f"no two adjacent ports are free from {service.port} on"
        yield Obstacle("ports taken", text, set_variable("FRTOP_PORT", "20000"))
        return
    text = (
        f"port {service.port} or {service.port + 1} is taken: an agent takes {service.free_port},"
        " and screens on other hosts have to name that port"
    )
    changes = (
        *set_variable("FRTOP_PORT", str(service.free_port)),
        Change("type", f"frtop --connect HOST:{service.free_port}"),
        Change("type", f"ss -ltnp '( sport = :{service.port} or sport = :{service.port + 1} )'"),
    )
    yield Obstacle("ports taken", text, changes)
