"""What `frtop doctor --ssh` found on many hosts, grouped by answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from frtop_probe.features.doctor.examination import Examination
from frtop_probe.features.doctor.tier import Tier, counted
from frtop_probe.proc.ptrace_refusal import Change, Obstacle
from frtop_tui.features.doctor.words import (
    doctor_document,
    note_lines,
    obstacle_lines,
    tier_table,
    wrapped,
)
from frtop_tui.job.model import Problem
from frtop_tui.job.naming import folded_hosts, listed, printable

MOST_LINES: Final = 4
"""Lines to type that differ between hosts only in numbers, such as a pid: this many are shown."""
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
        keys: for each tier, what is the same on all of them.
    """

    hosts: tuple[ExaminedHost, ...]
    tiers: tuple[Tier, ...]
    keys: tuple[Key, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts' names, as they were named."""
        return tuple(host.name for host in self.hosts)


def grouped(hosts: Sequence[ExaminedHost], way: str = SSH) -> list[HostGroup]:
    """The groups, the largest first, then as `hosts` are ordered; `way` as in `typed_from_afar`."""
    found: dict[Key, list[ExaminedHost]] = {}
    for host in hosts:
        found.setdefault(_key(host.found), []).append(host)
    groups = (
        HostGroup(tuple(group), _merged(group, way), tuple(map(_tier_key, group[0].found.tiers)))
        for group in found.values()
    )
    return sorted(groups, key=lambda group: -len(group.hosts))


def torch_versions(found: Examination) -> tuple[str, ...]:
    """The torch versions of the ranks, else of the torch that a job would use."""
    ranks = {one.torch.version for one in found.search.ranks if one.torch is not None}
    if found.search.ranks:
        return tuple(sorted(ranks))
    job = found.host.job_torch
    return (job.version,) if job is not None else ()


def typed_from_afar(change: Change, way: str = SSH) -> Change:
    """A line that starts frtop on the host, as the operator types it at their own shell.

    `way` is the command that runs another one on a host; "" if it has no such form.
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
    """One line for all hosts, or one for each of the first few."""
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
    """`1 to 2 ranks found`: texts that differ only in numbers; otherwise the first text."""
    if len(set(texts)) == 1 or len({_NUMBER.sub("#", text) for text in texts}) > 1:
        return texts[0]
    numbers = [_NUMBER.findall(text) for text in texts]
    ranges = iter([_range(column) for column in zip(*numbers, strict=True)])
    return _NUMBER.sub(lambda _: next(ranges), texts[0])


def _range(numbers: Sequence[str]) -> str:
    ordered = sorted(numbers, key=lambda text: int(text.replace(",", "")))
    least, most = ordered[0], ordered[-1]
    return least if least == most else f"{least} to {most}"


INSTALLED_ONLY: Final = (
    "key, agent and ports are those of an installed frtop: through a shell they are not needed,"
    " and were not tried"
)
_HOST: Final = "\0"


@dataclass(frozen=True, slots=True)
class DoctorRound:
    """The answers of all hosts.

    Attributes:
        hosts: those that have answered.
        failed: those that have not, and why.
        aliases: other names of hosts that have answered.
        way: the command that runs another on a host; "" where none is known.
    """

    hosts: tuple[ExaminedHost, ...]
    failed: Mapping[str, Problem] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    way: str = SSH

    @property
    def exit_status(self) -> int:
        """0; 1 if a closed tier or an unreachable host hides evidence."""
        closed = any(host.found.exit_status for host in self.hosts)
        return int(closed or bool(self.failed))


def round_lines(found: DoctorRound) -> list[str]:
    """A paragraph for the hosts with the most common answer; for the others, what differs."""
    groups = grouped(found.hosts, found.way)
    lines: list[str] = []
    for number, group in enumerate(groups):
        lines += [*([""] if number else []), *_group_lines(group, groups[0] if number else None)]
    lines += _failed_lines(found.failed)
    notes = [note for group in groups for tier in group.tiers for note in tier.notes]
    names = [f"{name} is {other} by another name" for name, other in found.aliases.items()]
    lines += note_lines([*notes, *names, INSTALLED_ONLY])
    lines += ["", *_conclusion(groups, found)]
    return list(map(printable, lines))


def round_document(found: DoctorRound) -> dict[str, Any]:
    """The object that `frtop doctor --ssh HOSTS --json` prints; keys are only ever added."""
    answered = {
        host.name: {**doctor_document(host.found), "error": None, "same_as": None}
        for host in found.hosts
    }
    failed = {
        name: {"error": {"text": one.text, "next": one.next}, "same_as": None}
        for name, one in found.failed.items()
    }
    same = {name: {"error": None, "same_as": other} for name, other in found.aliases.items()}
    return {
        "schema": "frtop-doctor-hosts-1",
        "exit_status": found.exit_status,
        "groups": [list(group.names) for group in grouped(found.hosts)],
        "hosts": {**answered, **failed, **same},
    }


def _group_lines(group: HostGroup, first: HostGroup | None) -> list[str]:
    tiers: Sequence[Tier] = group.tiers
    head = _head(group)
    if first is not None:
        keys = dict(zip((tier.code for tier in first.tiers), first.keys, strict=True))
        pairs = zip(group.tiers, group.keys, strict=True)
        tiers = [tier for tier, key in pairs if keys.get(tier.code) != key]
        but = "; what differs:" if tiers else ""
        head += f"; else as {folded_hosts(first.names)}{but}"
    lines = wrapped(head, "", "  ")
    return [*lines, *(tier_table(tiers) if tiers else []), *obstacle_lines(tiers)]


def _head(group: HostGroup) -> str:
    examined = [host.found for host in group.hosts]
    first = examined[0]
    pythons = sorted({found.host.python for found in examined})
    head = f"{folded_hosts(group.names)}: uid {first.host.rights.uid}, Python {listed(pythons, 3)}"
    torch = torch_versions(first)
    if not first.search.ranks:
        what = f"torch {torch[0]} of {first.host.job_python}" if torch else "no torch found"
        return f"{head}; no rank runs there: for a job that has not started ({what})"
    ranks = sum(len(found.search.ranks) + found.search.left_out for found in examined)
    jobs = sorted({found.search.job for found in examined if found.search.job})
    version = f", torch {listed(torch, 3)}" if torch else ""
    return f"{head}; beside {counted(ranks, 'rank')} of {listed(jobs, 3) or 'a job'}{version}"


def _failed_lines(failed: Mapping[str, Problem]) -> list[str]:
    """Hosts that failed for the same reason share a paragraph."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, problem in failed.items():
        text = problem.text.removeprefix(f"{name}: ").replace(name, _HOST)
        reasons.setdefault((text, problem.next.replace(name, _HOST)), []).append(name)
    lines: list[str] = []
    for (text, step), names in reasons.items():
        said = text.replace(_HOST, names[0])
        lines += ["", *wrapped(f"{folded_hosts(tuple(names))}: not examined", "", "  ")]
        lines += wrapped(said, "  why   ", "        ")
        lines += wrapped(step.replace(_HOST, names[0]), "  next  ", "        ")
    return lines


def _conclusion(groups: Sequence[HostGroup], found: DoctorRound) -> Iterable[str]:
    parts = []
    for group in groups:
        closed = [tier.title for tier in group.tiers if tier.mark == "closed" and tier.is_evidence]
        if closed:
            where = f"on {folded_hosts(group.names)}"
            parts.append(f"closed, and costs evidence, {where}: {', '.join(closed)}")
    if found.failed:
        parts.append(f"not examined: {folded_hosts(tuple(found.failed))}")
    if not parts:
        parts = ["nothing is closed that costs evidence"]
        untried = {tier.title: 0 for group in groups for tier in group.tiers
                   if tier.mark == "not tried"}  # fmt: skip
        parts += [f"not tried: {', '.join(untried)}"] if untried else []
    return wrapped(f"{'; '.join(parts)} (exit status {found.exit_status})", "", "")
