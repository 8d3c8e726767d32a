"""Decides from the facts of all processes which are ranks, launchers or helpers.

`launchers.py` has how each launcher is recognised, `claims.py` the variables that they set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from frtop_probe.unprepared.discovery import command_line, launchers
from frtop_probe.unprepared.discovery.claims import RankClaim, read_claim
from frtop_probe.unprepared.discovery.command_line import Title
from frtop_probe.unprepared.discovery.facts import DATA_WORKER, ProcessFacts, Role
from frtop_probe.unprepared.discovery.launchers import Launcher

Table = Mapping[int, ProcessFacts]
MAX_DEPTH: Final = 32


class Strength(IntEnum):
    """How much a process looks like a rank, leaving aside its environment."""

    NOTHING = 0
    TORCH = 1
    STORE = 2
    GROUPS = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """A process's role and the evidence for it.

    Attributes:
        sure: False for a rank that counts only if another rank of its world is sure.
        claim: the claim of its environment, unless inherited from its parent.
        rank_above: pid of the nearest ancestor that is a rank.
        launcher_above: pid of the nearest ancestor that is a launcher.
    """

    facts: ProcessFacts
    role: Role
    sure: bool = True
    claim: RankClaim | None = None
    title: Title | None = None
    rank_above: int | None = None
    launcher_above: int | None = None

    @property
    def strength(self) -> Strength:
        return strength_of(self.facts)


def strength_of(facts: ProcessFacts) -> Strength:
    if facts.has_group_threads:
        return Strength.GROUPS
    if facts.has_store_thread:
        return Strength.STORE
    return Strength.TORCH if facts.has_torch else Strength.NOTHING


def classify(table: Table) -> dict[int, Standing]:
    """Returns the standing of every process, parents before children."""
    claims = {
        pid: claim
        for pid, facts in table.items()
        if (facts.is_python or facts.has_group_threads) and (claim := read_claim(facts))
    }
    wrappers = _wrappers(table, claims)
    spawners = _spawners(table, claims)
    standings: dict[int, Standing] = {}
    for pid in _parents_first(table):
        facts = table[pid]
        claim = claims.get(pid)
        for starter in ancestors(facts, table):
            if starter.pid in spawners and _same_place(claim, claims.get(starter.pid)):
                # There is one launcher per node, and below it one process per device: the
                # environment has the node's number.
                claim = _of_the_node(claim)
        parent = standings.get(facts.parent)
        if pid in spawners:
            standings[pid] = Standing(facts, "launcher", True, claim, None, *_nearest(parent))
        elif pid in wrappers:
            standings[pid] = Standing(facts, "other", True, None, None, *_nearest(parent))
        else:
            standings[pid] = _standing(facts, parent, standings, claim)
    return standings


def launcher_of(facts: ProcessFacts) -> Launcher | None:
    """Returns which launcher a process is, by command line or name; None for others."""
    return command_line.launcher(facts.argv) or launchers.of_thread(facts.comm)


def ancestors(facts: ProcessFacts, table: Table) -> Iterator[ProcessFacts]:
    """Yields parent, grandparent and so on, as far as the table has them."""
    for _ in range(MAX_DEPTH):
        parent = table.get(facts.parent)
        if parent is None or parent.pid == facts.pid:
            return
        yield parent
        facts = parent


def _parents_first(table: Table) -> list[int]:
    """Returns all pids, parents first; a reused pid must not cause a cycle."""
    ordered: dict[int, None] = {}
    for pid, facts in table.items():
        chain = [pid]
        for parent in ancestors(facts, table):
            if parent.pid in ordered or parent.pid in chain:
                break
            chain.append(parent.pid)
        ordered.update(dict.fromkeys(reversed(chain)))
    return list(ordered)


def _wrappers(table: Table, claims: Mapping[int, RankClaim]) -> set[int]:
    """Returns programs that started the rank as another program and only wait for it."""
    found = set()
    for pid, claim in claims.items():
        facts = table[pid]
        strength = strength_of(facts)
        if strength == Strength.NOTHING or command_line.is_spawned(facts.argv):
            continue
        for above in ancestors(facts, table):
            if not _same_place(claim, claims.get(above.pid)) or above.argv == facts.argv:
                break
            weaker = strength_of(above) < Strength.STORE <= strength
            if weaker or (above.torch is False and strength_of(above) == Strength.NOTHING):
                found.add(above.pid)
    return found


def starter_of(facts: ProcessFacts, table: Table) -> ProcessFacts | None:
    """Returns the process that started it, perhaps through a fork server."""
    parent = table.get(facts.parent)
    if parent is not None and is_fork_server(parent, table.get(parent.parent)):
        parent = table.get(parent.parent)
    return parent


def is_fork_server(facts: ProcessFacts, parent: ProcessFacts | None) -> bool:
    """Returns whether it is a fork server; a fork server's children share its command line."""
    above = command_line.helper_role(parent.argv) if parent is not None else None
    return command_line.helper_role(facts.argv) == "fork_server" != above


def is_multiprocessing(facts: ProcessFacts, starter: ProcessFacts) -> bool:
    """Returns whether its starter runs the same program: multiprocessing, or an engine."""
    return (
        command_line.read_title(facts.argv, facts.comm) is not None
        or command_line.is_spawned(facts.argv)
        or (starter.is_python and bool(facts.argv) and facts.argv == starter.argv)
        or facts.parent != starter.pid
    )


def _spawners(table: Table, claims: Mapping[int, RankClaim]) -> set[int]:
    """Finds programs that start ranks by multiprocessing and are not ranks themselves.

    A process started by torchrun is always a rank; its children have their own world. A child
    that claims a rank that its starter does not claim is a rank even before it has any thread.
    """
    found = set()
    for facts in table.values():
        starter = starter_of(facts, table)
        if starter is None:
            continue
        claim = claims.get(starter.pid)
        named = facts.pid in claims and claim is None
        if strength_of(facts) < Strength.STORE and not named:
            continue
        if (
            starter.is_python
            and not (claim is not None and claim.elastic)
            and strength_of(starter) < Strength.STORE
            and _fixed_role(starter, None) is None
            and is_multiprocessing(facts, starter)
        ):
            found.add(starter.pid)
    return found


def _of_the_node(claim: RankClaim | None) -> RankClaim | None:
    return claim and replace(claim, rank=None, world_size=None, local_rank=None, elastic=False)


def _standing(  # noqa: PLR0911 - one rule after the other
    facts: ProcessFacts,
    parent: Standing | None,
    above: Mapping[int, Standing],
    claim: RankClaim | None,
) -> Standing:
    rank_above, launcher_above = _nearest(parent)
    chief = above.get(rank_above) if rank_above is not None else None

    def standing(role: Role, *, sure: bool = True, own: RankClaim | None = None) -> Standing:
        title = command_line.read_title(facts.argv, facts.comm)
        return Standing(facts, role, sure, own, title, rank_above, launcher_above)

    fixed = _fixed_role(facts, parent)
    if fixed is not None:
        return standing(fixed)
    inherited = chief is not None and _same_place(claim, _claim_of(chief))
    own = None if inherited else claim
    title = command_line.read_title(facts.argv, facts.comm)
    if title is not None:
        if not (title.is_rank or facts.has_group_threads):
            return standing("other")
        # Engines give their workers a separate world, whatever environment they inherit.
        return standing("rank", own=own if title.engine == "Ray" else None)
    if facts.has_group_threads:
        return standing("rank", own=own)
    if chief is not None and (inherited or parent is chief or claim is None):
        return standing("data_worker" if _is_forked(facts, parent, chief) else "other")
    if not facts.is_python:
        return standing("other")
    if own is not None:
        launcher = above.get(launcher_above) if launcher_above is not None else None
        return standing("rank", sure=_is_sure(facts, own, launcher), own=own)
    if facts.has_store_thread:
        return standing("rank")
    return standing("rank", sure=False) if facts.has_torch else standing("other")


def _fixed_role(facts: ProcessFacts, parent: Standing | None) -> Role | None:
    if facts.comm == DATA_WORKER:
        return "data_worker"
    helper = command_line.helper_role(facts.argv)
    forked = helper == "fork_server" and parent is not None and parent.role == "fork_server"
    if helper is not None and not forked and not facts.has_group_threads:
        return helper
    if launcher_of(facts) and not facts.has_group_threads:
        return "launcher"
    return None


def _is_sure(facts: ProcessFacts, claim: RankClaim, launcher: Standing | None) -> bool:
    """Returns whether a claim alone makes a rank, before there is a process group.

    Kubernetes containers have RANK in every process, and srun starts anything. So libtorch
    must be mapped, unless there is a torch launcher above.
    """
    above = launcher_of(launcher.facts) if launcher is not None else None
    if above is not None and above.starts_torch:
        return True
    if strength_of(facts) >= Strength.STORE:
        return True
    return facts.has_torch and (claim.source == "torch" or (claim.world_size or 0) > 1)


def _is_forked(facts: ProcessFacts, parent: Standing | None, chief: Standing) -> bool:
    """Returns whether a rank's multiprocessing started this process, not its program."""
    from_server = parent is not None and parent.role == "fork_server"
    forked = bool(facts.argv) and facts.argv == chief.facts.argv
    return from_server or forked or command_line.is_spawned(facts.argv)


def _nearest(parent: Standing | None) -> tuple[int | None, int | None]:
    """Returns the pids of the nearest rank and of the nearest launcher above."""
    if parent is None:
        return None, None
    pid = parent.facts.pid
    if parent.role == "rank":
        return pid, parent.launcher_above
    if parent.role == "launcher":  # it starts separate ranks
        return None, pid
    return parent.rank_above, parent.launcher_above


def _claim_of(standing: Standing) -> RankClaim | None:
    return standing.claim or read_claim(standing.facts)


def _same_place(one: RankClaim | None, other: RankClaim | None) -> bool:
    """Returns whether two claims name the same rank of one world: a child inherits its claim."""
    return (
        one is not None
        and other is not None
        and (one.source, one.rank, one.local_rank, one.world)
        == (other.source, other.rank, other.local_rank, other.world)
    )
