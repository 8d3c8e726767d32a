"""Hosts on which the doctor has found the same: together, with what differs in numbers. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from frtop_probe.features.doctor.examination import Examination
from frtop_probe.features.doctor.tier import Tier
from frtop_probe.proc.ptrace_refusal import Change, Obstacle

MOST_LINES: Final = 4
"""Lines to type that are the same but for numbers, such as a pid: shown for so many hosts."""
SSH: Final = "ssh {host}"
_NUMBER: Final = re.compile(r"\d[\d,]*")
_OURS: Final = re.compile(
    r"(?P<before>.*?) ?\bfrtop(?P<verb> doctor| --user \S+)?(?P<comment> {2,}#.*)?"
)
_BY_UID: Final = re.compile(r"'#(\d+)'")

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ExaminedHost:
    """A host that has answered, by the name that the operator uses."""

    name: str
    found: Examination


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts with the same answer.

    Attributes:
        tiers: as of one host; numbers that differ are ranges, lines that differ name their host.
        keys: of each tier: what is the same on all of them.
    """

    hosts: tuple[ExaminedHost, ...]
    tiers: tuple[Tier, ...]
    keys: tuple[Key, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts' names, as they were named."""
        return tuple(host.name for host in self.hosts)


def grouped(hosts: Sequence[ExaminedHost], way: str = SSH) -> list[HostGroup]:
    """The groups, the largest first; those of the same size in the order of their hosts.

    Args:
        hosts: in the order in which they are shown.
        way: as of `typed_from_afar`.
    """
    found: dict[Key, list[ExaminedHost]] = {}
    for host in hosts:
        found.setdefault(_key(host.found), []).append(host)
    groups = (
        HostGroup(tuple(group), _merged(group, way), tuple(map(_tier_key, group[0].found.tiers)))
        for group in found.values()
    )
    return sorted(groups, key=lambda group: -len(group.hosts))


def torch_versions(found: Examination) -> tuple[str, ...]:
    """Of the ranks' torch, else of the one that a job would have."""
    ranks = {one.torch.version for one in found.search.ranks if one.torch is not None}
    if found.search.ranks:
        return tuple(sorted(ranks))
    job = found.host.job_torch
    return (job.version,) if job is not None else ()


def typed_from_afar(change: Change, way: str = SSH) -> Change:
    """A line that starts frtop on the host, as the operator types it where they are.

    Args:
        change: any.
        way: the command that runs another on a host, through a shell; "" where it has no such form.
    """
    said = _OURS.fullmatch(change.line) if change.where == "type" else None
    if said is None:
        return change
    before = said["before"].replace("sudo ", "sudo -n ").replace(" -it ", " -i ")
    verb, comment = said["verb"] or "", said["comment"] or ""
    if before and not way:
        return Change("type", f"{before} sh    # as the end of the command of --via")
    before = _BY_UID.sub(r"\\\\#\1", before)
    via = f" --via '{way} \"{before} sh\"'" if before else ""
    return Change("type", f"frtop{verb} --ssh HOST{via}{comment}")


def _key(found: Examination) -> Key:
    host = found.host
    who = (host.rights.uid, host.machine, bool(found.search.ranks), torch_versions(found))
    return (*who, *map(_tier_key, found.tiers))


def _tier_key(tier: Tier) -> Key:
    obstacles = (
        (one.code, _NUMBER.sub("#", one.text), bool(one.of), len(one.changes))
        for one in tier.obstacles
    )
    return (tier.code, tier.mark, *obstacles)


def _merged(group: Sequence[ExaminedHost], way: str) -> tuple[Tier, ...]:
    tiers = ([_from_afar(tier, way) for tier in host.found.tiers] for host in group)
    names = [host.name for host in group]
    return tuple(_one_tier(names, column) for column in zip(*tiers, strict=True))


def _from_afar(tier: Tier, way: str) -> Tier:
    obstacles = (
        replace(one, changes=tuple(typed_from_afar(change, way) for change in one.changes))
        for one in tier.obstacles
    )
    return replace(tier, obstacles=tuple(obstacles))


def _one_tier(names: Sequence[str], tiers: Sequence[Tier]) -> Tier:
    columns = zip(*(tier.obstacles for tier in tiers), strict=True)
    return replace(
        tiers[0],
        basis=_ranged([tier.basis for tier in tiers]),
        obstacles=tuple(_one_obstacle(names, obstacles) for obstacles in columns),
        notes=tuple(dict.fromkeys(note for tier in tiers for note in tier.notes)),
    )


def _one_obstacle(names: Sequence[str], obstacles: Sequence[Obstacle]) -> Obstacle:
    texts = [one.text for one in obstacles]
    text = texts[0]
    if len(set(texts)) > 1:
        text = f"{names[0]}: {text}; alike on the others"
    columns = zip(*(one.changes for one in obstacles), strict=True)
    changes = (change for column in columns for change in _lines(names, column))
    of = dict.fromkeys(name for one in obstacles for name in one.of)
    return Obstacle(obstacles[0].code, text, tuple(changes), tuple(of))


def _lines(names: Sequence[str], changes: Sequence[Change]) -> list[Change]:
    """A line for all hosts, or one for each of the first."""
    if len(set(changes)) == 1:
        return list(changes[:1])
    lines = [
        replace(change, line=f"{change.line}    # on {name}")
        for name, change in zip(names, changes, strict=True)
    ]
    left = len(lines) - MOST_LINES
    if left > 0:
        last = lines[MOST_LINES - 1]
        lines[MOST_LINES - 1] = replace(last, line=f"{last.line}; {left} more: --json")
    return lines[:MOST_LINES]


def _ranged(texts: Sequence[str]) -> str:
    """`1 to 2 ranks found`: texts that differ in numbers; the first where they differ otherwise."""
    if len(set(texts)) == 1 or len({_NUMBER.sub("#", text) for text in texts}) > 1:
        return texts[0]
    numbers = [_NUMBER.findall(text) for text in texts]
    ranges = iter([_range(column) for column in zip(*numbers, strict=True)])
    return _NUMBER.sub(lambda _: next(ranges), texts[0])


def _range(numbers: Sequence[str]) -> str:
    ordered = sorted(numbers, key=lambda text: int(text.replace(",", "")))
    least, most = ordered[0], ordered[-1]
    return least if least == most else f"{least} to {most}"
