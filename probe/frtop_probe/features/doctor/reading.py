"""Tiers 0 and 2: what /proc shows of ranks, and c10d state in their memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from shlex import quote
from typing import Final

from frtop_probe.features.doctor.facts import HostFacts, RankFacts, SearchFacts, TorchFiles
from frtop_probe.features.doctor.tier import Tier, counted, folded, judged
from frtop_probe.proc.memory import GONE, NO_RIGHT
from frtop_probe.proc.process_rights import ProcessRights
from frtop_probe.proc.ptrace_refusal import (
    RESTRICTED,
    Change,
    Obstacle,
    as_user,
    is_contained,
    other_user,
    why_refused,
)
from frtop_probe.unprepared.c10d_state import NO_GROUPS, NO_MODULE
from frtop_probe.unprepared.cpython import FREE_THREADED, NO_PYTHON, NOT_STARTED, UNKNOWN_PYTHON
from frtop_probe.unprepared.flight_settings import NEWEST_READ, OLDEST_READ, release
from frtop_probe.unprepared.torch_layout import NO_TORCH, STRIPPED

NOTHING_YET: Final = frozenset((NO_GROUPS, NO_MODULE, NO_TORCH, NOT_STARTED, GONE))
"""Reasons that are no obstacle: there is nothing to read yet, or nothing any more."""
NO_RETURN: Final = Obstacle(
    "no return",
    "reading it took too long: it is stuck in a driver (then only the end of the"
    " driver's call helps), or this host has no free CPU",
)
UNREAD: Final = "no rank could be read in time"
NEWEST_PYTHON: Final = (3, 13)
_NO_CHANGES: Final[tuple[Change, ...]] = ()
_OTHER_PLACES: Final = (
    Change("type", "frtop doctor    # on the host, outside the container"),
    Change("type", "docker exec -it CONTAINER frtop    # the ranks' container"),
)
_SHOWN_RANGE: Final = f"{OLDEST_READ[0]}.{OLDEST_READ[1]} to {NEWEST_READ[0]}.{NEWEST_READ[1]}"


def processes(host: HostFacts, search: SearchFacts) -> Tier:
    """Tier 0: which processes are ranks."""
    obstacles = [*_of_proc(host, search), *_of_users(host, search)]
    obstacles += [replace(NO_RETURN, of=(one.name,)) for one in search.ranks if one.no_return]
    count = len(search.ranks) + search.left_out
    own = sum(rank.own for rank in search.ranks)
    basis = "no rank runs here yet" if search.searched else "/proc is readable"
    if own:
        basis = f"{counted(count, 'rank')} found"
    return judged(
        "processes",
        "processes",
        tells="ranks, jobs, DataLoader workers, states, CPU time, files",
        lost="everything: frtop finds no rank",
        obstacles=obstacles,
        basis=basis,
        ranks=count,
        notes=(*_notes_of_host(host, search), *_notes_of_ranks(host, search)),
    )


def c10d(host: HostFacts, search: SearchFacts) -> Tier:
    """Tier 2: c10d's state."""
    ranks = [rank for rank in search.ranks if not rank.no_return]
    obstacles = list(rights_of(host, ranks))
    if search.ranks:
        obstacles += [found for rank in ranks if (found := _of_c10d(rank)) is not None]
        basis, known = _read_basis(ranks), any(rank.groups for rank in ranks)
    else:
        obstacles += _of_torch(host.job_torch)
        known = host.read_memory.result == "ok" and host.job_torch is not None
        basis = _unread_basis(host)
    return judged(
        "c10d",
        "c10d state",
        tells="process groups, members, sequence numbers, collectives in progress with their sizes",
        lost="which rank has not entered which op: frtop has no op numbers to compare",
        obstacles=obstacles,
        basis=basis,
        known=known,
        ranks=len(ranks),
        notes=(*left_to_agent(host, search), *_version_notes(host, search)),
    )


def rights_of(host: HostFacts, ranks: Iterable[RankFacts]) -> Iterable[Obstacle]:
    """Why we may not read the memory of ranks; without ranks, of a process that doctor started."""
    read = list(ranks)
    for rank in read:
        if rank.memory == NO_RIGHT and rank.rights is not None:
            found = _why(host, rank, rank.rights)
            if _is_left_to_agent(host, rank, found):
                continue
            # Without the pid, several ranks with the same reason share one line.
            text = found.text.replace(f"process {rank.pid}", "it") if len(read) > 1 else found.text
            yield replace(found, text=text, of=(rank.name,))
    if not read and not host.read_memory.is_open:
        yield why_refused(host.rights, host.rights, host.yama)


def left_to_agent(host: HostFacts, search: SearchFacts) -> tuple[str, ...]:
    """Which ranks give read permission to this host's agent only."""
    names = [
        rank.name
        for rank in search.ranks
        if rank.memory == NO_RIGHT
        and rank.rights is not None
        and _is_left_to_agent(host, rank, _why(host, rank, rank.rights))
    ]
    if not names:
        return ()
    text = (
        f"prepared, and kernel.yama.ptrace_scope is {RESTRICTED}: they let this host's agent"
        " read them, unless FRTOP_PTRACER=0. Doctor is another process and could not try it"
    )
    return (f"{folded(names)}: {text}",)


def _is_left_to_agent(host: HostFacts, rank: RankFacts, found: Obstacle) -> bool:
    return rank.prepared and found.code == "yama" and host.yama == RESTRICTED


def _why(host: HostFacts, rank: RankFacts, rights: ProcessRights) -> Obstacle:
    if not rank.own:
        return other_user(host.rights, rights)
    return why_refused(host.rights, rights, host.yama, (rank.program, rank.program_flaw))


def _of_proc(host: HostFacts, search: SearchFacts) -> Iterable[Obstacle]:
    if not host.proc.mounted:
        yield Obstacle(
            "no /proc", "/proc is not mounted", (Change("type", "mount -t proc proc /proc"),)
        )
    elif host.proc.own is False:
        yield Obstacle(
            "other /proc",
            "/proc belongs to another pid namespace: its pids are not the pids of processes here",
            (Change("type", "mount -t proc proc /proc"),),
        )
    if host.proc.hidepid in ("4", "ptraceable"):
        yield Obstacle(
            "hidepid",
            f"/proc is mounted with hidepid={host.proc.hidepid}: it hides processes that"
            " frtop may not trace",
            (Change("type", "sudo mount -o remount,hidepid=0 /proc"),),
        )
    if search.problem:
        text, changes = search.problem, _NO_CHANGES
        if is_contained(host.rights):
            text += " (frtop is in a pid namespace of its own, a container)"
            changes = _OTHER_PLACES
        yield Obstacle("not found", text, changes)


def _of_users(host: HostFacts, search: SearchFacts) -> Iterable[Obstacle]:
    for rank in search.ranks:
        if not rank.own and rank.rights is not None:
            yield replace(other_user(host.rights, rank.rights), of=(rank.name,))
    if search.ranks:
        return
    for one in search.others:
        yield Obstacle(
            "user",
            f"{counted(one.ranks, 'rank')} of user {one.user}: not looked at."
            " frtop reads only its own user's processes",
            (as_user(host.rights, one.user, one.uid),),
        )


def _notes_of_host(host: HostFacts, search: SearchFacts) -> Iterable[str]:
    if is_contained(host.rights) and not search.problem:
        yield "frtop is in a pid namespace of its own: ranks outside this container do not show"
    if host.rights.no_new_privileges:
        yield "sudo has no effect here: frtop's process may gain no rights (no_new_privs)"
    if host.proc.hidepid in ("1", "2", "noaccess", "invisible"):
        yield f"/proc has hidepid={host.proc.hidepid}: ranks of other users do not show"
    if host.proc.subset:
        yield "/proc shows processes only: the host's settings (Yama) are unknown"


def _notes_of_ranks(host: HostFacts, search: SearchFacts) -> Iterable[str]:
    if search.ranks:
        for one in search.others:
            yield f"{one.ranks} more belong to user {one.user}: not looked at"
    if search.left_out:
        yield f"{search.left_out} more ranks run here; doctor read the first {len(search.ranks)}"
    unread = [rank.name for rank in search.ranks if rank.settings_unread and rank.own]
    if unread:
        yield f"environment unreadable, so settings are unknown: {folded(unread)}"
    for kind, what in (("pid", "pid"), ("mnt", "mount"), ("net", "network"), ("user", "user")):
        ours = host.rights.namespaces.get(kind)
        others = [
            rank.name
            for rank in search.ranks
            if rank.rights is not None and rank.rights.namespaces.get(kind, ours) != ours
        ]
        if others:
            yield f"in another {what} namespace than frtop: {folded(others)}"


def _of_c10d(rank: RankFacts) -> Obstacle | None:
    reason = rank.c10d
    if not reason or rank.memory == NO_RIGHT or reason in NOTHING_YET:
        return None
    version = rank.torch.version if rank.torch is not None else ""
    if reason == STRIPPED:
        return Obstacle("stripped", reason, reinstalled(version), (rank.name,))
    if reason in (FREE_THREADED, UNKNOWN_PYTHON):
        line = "python3.13 -m venv VENV    # CPython 3.10 to 3.13 with the GIL, for the job"
        return Obstacle("python", reason, (Change("type", line),), (rank.name,))
    code = "python" if reason == NO_PYTHON else "not readable"
    return Obstacle(code, reason, (), (rank.name,))


def _of_torch(torch: TorchFiles | None) -> Iterable[Obstacle]:
    """Obstacles in an installation that no rank runs yet."""
    if torch is None:
        return
    known = release(torch.version)
    if known is not None and known < OLDEST_READ:
        oldest = ".".join(map(str, OLDEST_READ))
        line = f"pip install 'torch>={oldest}'    # in the job's environment"
        yield Obstacle(
            "torch", f"torch {torch.version} is older than the readable releases ({_SHOWN_RANGE})",
            (Change("type", line),),
        )  # fmt: skip
    if torch.exports is False:
        yield Obstacle("stripped", STRIPPED, reinstalled(torch.version))


def reinstalled(version: str) -> tuple[Change, ...]:
    """The change that replaces a stripped torch with the released one."""
    wanted = f"torch=={version}" if version else "torch"
    word = quote(wanted) if "'" in wanted else f"'{wanted}'"
    line = f"pip install --force-reinstall --no-deps {word}    # in the job's environment"
    return (Change("type", line),)


def _read_basis(ranks: list[RankFacts]) -> str:
    groups = sum(rank.groups for rank in ranks)
    if not ranks:
        return UNREAD
    if groups:
        return f"{counted(groups, 'group')} read in {counted(len(ranks), 'rank')}"
    return next((rank.c10d for rank in ranks if rank.c10d), "no process group yet")


def _unread_basis(host: HostFacts) -> str:
    if host.job_torch is None:
        return "torch not found: name the job's Python with --python"
    return (
        f"a test process's memory was read; torch {host.job_torch.version or 'of unknown version'}"
    )


def _version_notes(host: HostFacts, search: SearchFacts) -> Iterable[str]:
    for python in dict.fromkeys(rank.python for rank in search.ranks if rank.python):
        known = release(python)
        if known is not None and known > NEWEST_PYTHON:
            yield f"Python {python} is newer than the tested versions (3.10 to 3.13)"
    read = [rank.torch.version for rank in search.ranks if rank.torch is not None]
    if not search.ranks and host.job_torch is not None:
        read = [host.job_torch.version]
    for version in dict.fromkeys(filter(None, read)):
        known = release(version)
        if known is not None and known > NEWEST_READ:
            yield f"torch {version} is newer than the tested releases ({_SHOWN_RANGE})"
