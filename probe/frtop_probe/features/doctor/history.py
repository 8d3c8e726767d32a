"""Tier 2b, the ring of torch's Flight Recorder, and NCCL's dump of it at a timeout. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from frtop_probe.device_settings import DUMP, YES, DeviceSetting, settings_in_the_way, uses_nccl
from frtop_probe.features.doctor.facts import HostFacts, RankFacts, SearchFacts
from frtop_probe.features.doctor.reading import UNREAD, reinstalled, rights_of
from frtop_probe.features.doctor.tier import Tier, judged, set_variable
from frtop_probe.proc.ptrace_refusal import Change, Obstacle
from frtop_probe.unprepared.flight_ring import NO_RING
from frtop_probe.unprepared.flight_settings import OFF, flight_ring_size, release
from frtop_probe.unprepared.static_symbols import CHANGED, STRIPPED

_DUMPS_BY_DEFAULT_SINCE: Final = (2, 11)
"""Present in sources from 2025 on, absent in 2024; releases in between were not compared."""
NCCL: Final = ("nccl",)
"""Assumed for a job whose groups do not show their backend."""
_UNKNOWN: Final = f"this release may not dump by itself; to be sure: export {DUMP}=1"


def history(host: HostFacts, search: SearchFacts) -> Tier:
    """Tier 2b: past ops."""
    ranks = [rank for rank in search.ranks if not rank.no_return]
    obstacles = list(rights_of(host, ranks))
    for rank in ranks:
        if not rank.memory:
            obstacles += [replace(one, of=(rank.name,)) for one in _of_rank(rank)]
    if not search.ranks:
        obstacles += _of_next_job(host)
    basis, known = _basis_beside(ranks) if search.ranks else _basis_before(host)
    return judged(
        "history",
        "torch's history",
        tells="past ops: kind, dtypes, shapes, when they were issued, whether they have ended",
        lost="earlier ops; a mismatch that did not hang",
        obstacles=obstacles,
        basis=basis,
        known=known,
        ranks=len(ranks),
    )


def dumps(host: HostFacts, search: SearchFacts) -> Tier:
    """Dumps of the ring when an NCCL op times out; they outlive the rank."""
    ranks = [rank for rank in search.ranks if not rank.no_return and not rank.settings_unread]
    concerned = [rank for rank in ranks if _may_have_nccl(rank)]
    obstacles: list[Obstacle] = []
    known = True
    if search.ranks:
        for rank in concerned:
            version = rank.torch.version if rank.torch is not None else ""
            found = _of_dumps(version, rank.settings)
            obstacles += [replace(one, of=(rank.name,)) for one in found]
            known = known and _dumps(version, rank.settings)
    else:
        version = host.job_torch.version if host.job_torch is not None else ""
        obstacles += _of_dumps(version, host.settings)
        known = _dumps(version, host.settings)
    known = known and bool(concerned or not search.ranks)
    asked = bool(concerned) if search.ranks else host.job_torch is not None
    notes = (_UNKNOWN,) if asked and not known and not obstacles else ()
    return judged(
        "dumps",
        "dumps",
        tells="each rank's last ops in a file after an NCCL op timed out: `frtop open`",
        lost="after a timeout, only the job's output is left",
        obstacles=obstacles,
        basis=_dump_basis(search, asked=asked, known=known),
        known=known,
        ranks=len(concerned),
        notes=notes,
    )


def _of_rank(rank: RankFacts) -> Iterable[Obstacle]:
    version = rank.torch.version if rank.torch is not None else ""
    for ring in rank.rings:
        if ring.capacity:
            continue
        if ring.reason in (OFF, NO_RING):
            yield from _of_size(version, rank.settings)
        elif ring.reason == STRIPPED:
            yield Obstacle("stripped", ring.reason, reinstalled(version))
        elif ring.reason == CHANGED:
            line = "scancel JOB, and start it again    # torch was reinstalled while it ran"
            yield Obstacle("torch changed", ring.reason, (Change("type", line),))
        elif ring.reason:
            yield Obstacle("not readable", ring.reason)


def _of_next_job(host: HostFacts) -> Iterable[Obstacle]:
    if host.job_torch is None:
        return
    yield from _of_size(host.job_torch.version, host.settings)
    if host.job_torch.locals is False:
        yield Obstacle("stripped", STRIPPED, reinstalled(host.job_torch.version))


def _of_size(version: str, settings: Mapping[str, str]) -> Iterable[Obstacle]:
    """Obstacles if the size of the ring is zero."""
    found = settings_in_the_way(NCCL, settings, version)
    yield from (as_obstacle(one) for one in found if one.code == "recorder off")


def _of_dumps(version: str, settings: Mapping[str, str]) -> Iterable[Obstacle]:
    found = settings_in_the_way(NCCL, settings, version)
    yield from (as_obstacle(one) for one in found if one.dumps)


def as_obstacle(setting: DeviceSetting) -> Obstacle:
    """Returns a setting of torch or NCCL as an obstacle to a tier."""
    changes = set_variable(setting.variable, setting.value) if setting.variable else ()
    return Obstacle(setting.code, setting.why, changes)


def _dumps(version: str, settings: Mapping[str, str]) -> bool:
    """Whether it dumps for certain."""
    known = release(version)
    size, _ = flight_ring_size(version, settings)
    by_default = known is not None and known >= _DUMPS_BY_DEFAULT_SINCE
    return bool(size) and (by_default or settings.get(DUMP, "").lower() in YES)


def _may_have_nccl(rank: RankFacts) -> bool:
    return not rank.backends or uses_nccl(rank.backends)


def _dump_basis(search: SearchFacts, *, asked: bool, known: bool) -> str:
    if not search.ranks and not asked:
        return "no torch was found"
    if not asked:
        unread = any(rank.settings_unread for rank in search.ranks)
        return "settings not readable" if unread else "gloo writes none"
    return "the settings; written for NCCL only" if known else f"{DUMP} is not set"


def _basis_beside(ranks: list[RankFacts]) -> tuple[str, bool]:
    """The basis of the mark, and whether it suffices for ok."""
    if not ranks:
        return UNREAD, False
    sizes = [ring.capacity for rank in ranks for ring in rank.rings if ring.capacity]
    if not sizes:
        return "no op has been recorded yet", False
    recorded = sum(ring.recorded for rank in ranks for ring in rank.rings)
    return f"rings of {min(sizes):,} ops; {recorded:,} recorded so far", True


def _basis_before(host: HostFacts) -> tuple[str, bool]:
    """The same, for a job that has not started."""
    if host.job_torch is None:
        return "no torch was found", False
    size, _ = flight_ring_size(host.job_torch.version, host.settings)
    if not size:
        return f"the default of torch {host.job_torch.version or '?'} is unknown", False
    return f"a ring of {size:,} ops, by the settings here", host.job_torch.locals is True
