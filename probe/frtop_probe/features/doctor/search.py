"""Finds the ranks on this host and reads each, in children that doctor may abandon."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

from frtop_probe.features.doctor.facts import OtherRanks, RankFacts, SearchFacts
from frtop_probe.features.doctor.rank_reader import read_rank
from frtop_probe.proc.process_rights import read_rights
from frtop_probe.proc.risky_calls import call, call_all
from frtop_probe.unprepared.discovery.facts import Candidate, Discovery
from frtop_probe.unprepared.discovery.scanner import Scanner
from frtop_probe.unprepared.model import from_json

SEARCH_S: Final = 10.0
RANK_S: Final = 8.0
"""A first look takes 0.1 s; searching a gigabyte of symbols on a cold disk takes 2 s."""
MAX_RANKS: Final = 16
"""Most ranks of one host that doctor reads; others meet the same obstacles."""
NO_SEARCH: Final = "no search for ranks: "
TOO_LONG: Final = (
    f"it took longer than {SEARCH_S:.0f} s: a read of /proc hangs, or this host has no CPU to spare"
)
NO_PROCESS: Final = "there is no process {pid} here"


def find_ranks(pid: int | None = None) -> SearchFacts:
    """Searches for ranks; with `pid`, reads only that process, whether or not it is a rank."""
    done = call(lambda: asdict(Scanner().scan()), SEARCH_S)
    found = from_json(Discovery, done.value) if isinstance(done.value, dict) else Discovery()
    why = TOO_LONG if done.timed_out else "it failed"
    problem = "" if isinstance(done.value, dict) else NO_SEARCH + why
    others = tuple(OtherRanks(one.user, one.uid, one.ranks) for one in found.left_alone)
    if pid is not None:
        return _only(pid, found, others)
    ranks = [(rank, job.prepared) for job in found.jobs for rank in job.ranks]
    names = dict.fromkeys(job.name for job in found.jobs if job.name)
    read = _read(ranks[:MAX_RANKS])
    if len(found.jobs) > 1:
        read = tuple(replace(rank, label=f"pid {rank.pid}") for rank in read)
    return SearchFacts(
        read, others, ", ".join(names), problem,
        left_out=max(0, len(ranks) - MAX_RANKS),
    )  # fmt: skip


def _only(pid: int, found: Discovery, others: tuple[OtherRanks, ...]) -> SearchFacts:
    for job in found.jobs:
        for rank in job.ranks:
            if rank.pid == pid:
                return SearchFacts(_read([(rank, job.prepared)]), others, job.name)
    rights = read_rights(pid)
    if rights.uid is None:
        return SearchFacts((), others, problem=NO_PROCESS.format(pid=pid))
    own = rights.uid == read_rights("self").uid
    done = call(lambda: asdict(read_rank(pid, own=own)), RANK_S)
    return SearchFacts((_facts(done.value, pid, None),), others, f"process {pid}")


def _read(ranks: list[tuple[Candidate, bool]]) -> tuple[RankFacts, ...]:
    calls = {
        one.pid: partial(_read_one, one.pid, one.rank, prepared=one.prepared or prepared)
        for one, prepared in ranks
    }
    done = call_all(calls, RANK_S)
    facts = (_facts(done[one.pid].value, one.pid, one.rank) for one, _ in ranks)
    return tuple(one for one in facts if one.rights is not None and one.rights.uid is not None)


def _read_one(pid: int, rank: int | None, *, prepared: bool) -> dict[str, Any]:
    return asdict(read_rank(pid, rank, prepared=prepared))


def _facts(data: object, pid: int, rank: int | None) -> RankFacts:
    if isinstance(data, dict):
        return from_json(RankFacts, data)
    return RankFacts(pid, rank, rights=read_rights(pid), no_return=True)
