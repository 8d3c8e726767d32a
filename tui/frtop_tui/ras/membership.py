"""Which ranks of a job a communicator has, and which of its process groups it may be.

RAS knows addresses and pids, torch knows ranks. Where pids repeat between hosts, the address
decides; what stays ambiguous is said, never guessed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_tui.job.model import BaseFrame, GroupView
from frtop_tui.job.naming import group_label

MAX_UNNAMED: Final = 1024
"""Ranks of a communicator that an answer does not name; RAS names all it misses."""
Place = tuple[str, int]
"""A process as RAS names it: address and pid."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The job's rank for each rank of a communicator (None: not known), and groups that fit.

    More than one group: their members are equal, so nothing tells them apart.
    """

    ranks: tuple[int | None, ...]
    groups: tuple[str, ...]
    twins: int = 1
    """Communicators of the answer with these members, this one included."""


def memberships(frame: BaseFrame, response: wire.RasResponse) -> tuple[Membership, ...]:
    """One for each communicator of the answer, in its order."""
    report = response.report
    communicators = report.communicators if report is not None else ()
    places = _ranks_by_place(frame, response, communicators)
    members = [_members(one, places) for one in communicators]
    return tuple(
        Membership(ranks, groups_of(frame.groups, ranks), twins=members.count(ranks))
        for ranks in members
    )


def groups_of(groups: Iterable[GroupView], ranks: tuple[int | None, ...]) -> tuple[str, ...]:
    """Names of the process groups of a device whose members are these, in this order."""
    if all(rank is None for rank in ranks):
        return ()
    return tuple(
        group_label(group.key.name, group.description)
        for group in groups
        if "ccl" in group.backend
        and len(group.members) == len(ranks)
        and all(
            known is None or known == member
            for known, member in zip(ranks, group.members, strict=True)
        )
    )


def _members(
    communicator: wire.RasCommunicator, places: Mapping[Place, int]
) -> tuple[int | None, ...]:
    named = _all(communicator)
    if not 0 < communicator.size <= len(named) + MAX_UNNAMED:
        return ()  # a size that nothing in the answer supports
    found: list[int | None] = [None] * communicator.size
    for one in named:
        if 0 <= one.rank < len(found):
            found[one.rank] = places.get((one.host, one.pid))
    return tuple(found)


def _all(
    communicator: wire.RasCommunicator,
) -> tuple[wire.RasRank | wire.RasMissingRank, ...]:
    return (*communicator.ranks, *communicator.missing)


def _ranks_by_place(
    frame: BaseFrame, response: wire.RasResponse, communicators: Iterable[wire.RasCommunicator]
) -> dict[Place, int]:
    """The job's rank of each process that RAS names and that is known without doubt."""
    pids: defaultdict[str, set[int]] = defaultdict(set)
    for communicator in communicators:
        for one in _all(communicator):
            if one.host and one.pid:
                pids[one.host].add(one.pid)
    own = dict(response.pids)
    ranks: defaultdict[str, dict[int, int]] = defaultdict(dict)
    addresses: defaultdict[str, set[str]] = defaultdict(set)
    for view in frame.ranks.values():
        seen = own.get(view.key) if view.host == response.host else None
        ranks[view.host][seen or view.identity.pid] = view.rank
        if view.snapshot is not None:
            addresses[view.host].update(view.snapshot.addresses)
    found: dict[Place, int] = {}
    for address, wanted in pids.items():
        fitting = [host for host, known in ranks.items() if wanted <= known.keys()]
        named = [host for host in fitting if address in addresses[host]]
        chosen = named or fitting
        if len(chosen) == 1:
            found |= {(address, pid): ranks[chosen[0]][pid] for pid in wanted}
    return found
