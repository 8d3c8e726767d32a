"""Decides which processes are one job (`identity_of`), from the role of each process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from frtop_probe.unprepared.discovery import command_line, launchers
from frtop_probe.unprepared.discovery.claims import FOR_FRTOP, is_prepared
from frtop_probe.unprepared.discovery.facts import Candidate, FoundJob, ProcessFacts
from frtop_probe.unprepared.discovery.roles import (
    Standing,
    Table,
    classify,
    is_multiprocessing,
    launcher_of,
)

Standings = Mapping[int, Standing]
ProcessName = tuple[int, int]
"""pid and start time in clock ticks."""


def find_jobs(
    table: Table, recorded: Collection[ProcessName] = frozenset()
) -> tuple[FoundJob, ...]:
    """Groups the ranks of the table into jobs, ordered by the start of their oldest rank.

    The table has the ancestors of the processes that matter, too. `recorded` ones have a recorder.
    """
    standings = classify(table)
    worlds: defaultdict[str, list[Standing]] = defaultdict(list)
    for standing in standings.values():
        if standing.role == "rank":
            worlds[identity_of(standing, standings)].append(standing)
    jobs = []
    for identity, ranks in worlds.items():
        if any(rank.sure for rank in ranks):
            ranks, doubles = _without_doubles(ranks)  # noqa: PLW2901
            jobs += [
                _job(name, part, standings, recorded, doubles)
                for name, part in _split(identity, ranks, standings).items()
            ]
    return tuple(sorted(jobs, key=lambda job: min(rank.start_ticks for rank in job.ranks)))


def identity_of(standing: Standing, standings: Standings) -> str:
    """Returns a text that is the same for all ranks of one world.

    The environment's words are equal on all hosts. Without them, processes count as one world if
    the same process on the same host started them and they run the same program.
    """
    if standing.claim is not None and standing.claim.world:
        return " ".join(standing.claim.world)
    if standing.claim is not None and standing.launcher_above is not None:
        return f"launcher {_name(standings[standing.launcher_above].facts)}"
    if standing.rank_above is not None and standing.title is None:
        return f"inside {_name(standings[standing.rank_above].facts)}"
    starter = _starter(standing, standings)
    if starter is None or starter.pid <= 1:
        return f"session {standing.facts.session} {_program(standing, standings)}"
    if is_multiprocessing(standing.facts, starter):
        return f"started by {_name(starter)}"
    return f"started by {_name(starter)} {_program(standing, standings)}"


def _starter(standing: Standing, standings: Standings) -> ProcessFacts | None:
    parent = standings.get(standing.facts.parent)
    if parent is not None and parent.role == "fork_server":
        parent = standings.get(parent.facts.parent)
    return parent.facts if parent is not None else None


def _without_doubles(ranks: list[Standing]) -> tuple[list[Standing], list[Standing]]:
    """Separates processes that claim the rank of another process that looks more like a rank.

    They are forked children with their rank's environment, whose parent has ended.
    """
    best: dict[int, int] = {}
    for rank in ranks:
        if rank.claim is not None and rank.claim.rank is not None:
            number = rank.claim.rank
            best[number] = max(best.get(number, 0), rank.strength)
    certain: list[Standing] = []
    doubles: list[Standing] = []
    for rank in ranks:
        number_claimed = rank.claim.rank if rank.claim is not None else None
        weaker = number_claimed is not None and rank.strength < best[number_claimed]
        (doubles if weaker else certain).append(rank)
    return certain, doubles


def _split(identity: str, ranks: list[Standing], standings: Standings) -> dict[str, list[Standing]]:
    """Splits a world in which a rank occurs twice: by replica, else by launcher.

    The second rank belongs to an earlier run at the same address that has not ended, or to
    another replica of an engine.
    """
    numbers = Counter(n for rank in ranks if (n := _number(rank)) is not None)
    if all(count == 1 for count in numbers.values()):
        return {identity: ranks}
    parts: defaultdict[str, list[Standing]] = defaultdict(list)
    for rank in ranks:
        title = rank.title
        if title is not None and title.data_parallel is not None:
            parts[f"{identity} replica {title.data_parallel}"].append(rank)
        elif rank.launcher_above is not None:
            launcher = standings[rank.launcher_above].facts
            parts[f"{identity} launcher {_name(launcher)}"].append(rank)
        else:
            parts[f"{identity} session {rank.facts.session}"].append(rank)
    return {identity: ranks} if len(parts) == 1 else dict(parts)


def _job(
    identity: str,
    ranks: list[Standing],
    standings: Standings,
    recorded: Collection[ProcessName],
    doubles: list[Standing],
) -> FoundJob:
    pids = {rank.facts.pid for rank in ranks}
    kind, launcher = _launcher(ranks[0], standings)
    ended = _ended(ranks)
    candidates = [replace(_candidate(one, identity, recorded), ended=ended) for one in ranks]
    numbers = {_number(rank) for rank in ranks}
    # The doubles contain only claims of this world; a split world divides them by rank.
    helpers = [replace(d, role="data_worker") for d in doubles if _number(d) in numbers]
    helpers += [s for s in standings.values() if _helps(s, pids, launcher)]
    return FoundJob(
        identity=identity,
        name=next(filter(None, (_name_of_program(rank, standings) for rank in ranks)), ""),
        launcher=kind,
        launcher_pid=launcher,
        uid=ranks[0].facts.uid,
        prepared=all(candidate.prepared for candidate in candidates),
        ranks=tuple(
            sorted(candidates, key=lambda c: (c.rank is None, c.rank or 0, c.pid)),
        ),
        helpers=tuple(_candidate(helper, identity, recorded) for helper in helpers),
    )


def _ended(ranks: list[Standing]) -> int:
    """Returns how many ranks of a world have ended; 0 unless one living launcher started all here.

    A launcher starts its ranks all at once, and waits for all of them.
    """
    claims = [rank.claim for rank in ranks]
    sizes = {claim.local_world_size for claim in claims if claim is not None}
    worlds = {claim.world_size for claim in claims if claim is not None}
    size = next(iter(sizes)) if len(sizes) == 1 and sizes == worlds and None not in claims else None
    above = {rank.launcher_above for rank in ranks}
    return max(0, size - len(ranks)) if size and len(above) == 1 and None not in above else 0


def _helps(standing: Standing, ranks: set[int], launcher: int | None) -> bool:
    if standing.role in ("rank", "other"):
        return False
    if standing.role == "launcher":
        return standing.facts.pid == launcher
    if standing.rank_above is not None:
        return standing.rank_above in ranks
    return launcher is not None and standing.facts.parent == launcher


def _launcher(rank: Standing, standings: Standings) -> tuple[str, int | None]:
    """Returns the kind of a world's launcher and its pid."""
    starter = _starter(rank, standings)
    if rank.title is not None:
        is_same = starter is not None and starter.is_python
        return rank.title.engine, starter.pid if starter is not None and is_same else None
    if rank.launcher_above is not None:
        facts = standings[rank.launcher_above].facts
        found = launcher_of(facts)
        return found.kind if found else launchers.BY_MULTIPROCESSING, facts.pid
    if rank.claim is None and starter is not None and is_multiprocessing(rank.facts, starter):
        return launchers.BY_MULTIPROCESSING, starter.pid
    found = launchers.of_claim(rank.claim.source) if rank.claim is not None else None
    return found.kind if found else "", None


def _name_of_program(rank: Standing, standings: Standings) -> str:
    """Like `_program`, but prefers the title of a worker, which changes while it lives."""
    work = rank.title.work if rank.title is not None else ""
    return work or _program(rank, standings)


def _program(rank: Standing, standings: Standings) -> str:
    if rank.title is not None:
        return rank.title.engine
    argv = rank.facts.argv
    if command_line.is_spawned(argv) or command_line.helper_role(argv) is not None:
        starter = _starter(rank, standings)
        argv = starter.argv if starter is not None else ()
    return command_line.program_name(argv) or rank.facts.comm


def _candidate(standing: Standing, identity: str, recorded: Collection[ProcessName]) -> Candidate:
    facts, claim = standing.facts, standing.claim
    return Candidate(
        pid=facts.pid,
        start_ticks=facts.start_ticks,
        role=standing.role,
        rank=_number(standing),
        world_size=claim.world_size if claim is not None else None,
        local_rank=claim.local_rank if claim is not None else None,
        job=identity,
        prepared=(facts.pid, facts.start_ticks) in recorded or is_prepared(facts.variables),
        parent=facts.parent,
        inner_pid=facts.inner_pid or facts.pid,
        pid_namespace=facts.pid_namespace,
        ring_folder=facts.variables.get("FRTOP_DIR", ""),
        settings=tuple((n, facts.variables[n]) for n in FOR_FRTOP if n in facts.variables),
        reasons=facts.unread,
    )


def _number(standing: Standing) -> int | None:
    if standing.title is not None and standing.title.rank is not None:
        return standing.title.rank
    return standing.claim.rank if standing.claim is not None else None


def _name(facts: ProcessFacts) -> str:
    return f"{facts.pid}@{facts.start_ticks}"
