"""What `frtop doctor --ssh` found on many hosts, as lines of at most 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from frtop_probe.features.doctor.tier import Tier, counted
from frtop_tui.features.doctor.group_words import (
    SSH,
    ExaminedHost,
    HostGroup,
    grouped,
    torch_versions,
)
from frtop_tui.features.doctor.words import (
    HEADS,
    doctor_document,
    note_lines,
    obstacle_lines,
    row,
    wrapped,
)
from frtop_tui.job.model import Problem
from frtop_tui.job.naming import folded_hosts, listed, printable

INSTALLED_ONLY: Final = (
    "key, agent and ports are those of an installed frtop: through a shell they are not needed,"
    " and were not tried"
)
_HOST: Final = "\0"


@dataclass(frozen=True, slots=True)
class DoctorRound:
    """What came of all hosts.

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
        """0, or 1 where evidence is lost: by a closed tier, or a host that is not reached."""
        closed = any(host.found.exit_status for host in self.hosts)
        return int(closed or bool(self.failed))


def round_lines(found: DoctorRound) -> list[str]:
    """A paragraph for all hosts with the same answer; of the others only what differs."""
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
    if tiers:
        lines += ["", row(*HEADS)]
        lines += [row(tier.title, tier.mark, tier.basis) for tier in tiers]
    return [*lines, *obstacle_lines(tiers)]


def _head(group: HostGroup) -> str:
    examined = [host.found for host in group.hosts]
    first = examined[0]
    pythons = sorted({found.host.python for found in examined})
    head = f"{folded_hosts(group.names)}: uid {first.host.rights.uid}, Python {listed(pythons, 3)}"
    torch = torch_versions(first)
    if not first.search.ranks:
        what = f"torch {torch[0]} of {first.host.job_python}" if torch else "no torch found"
        return f"{head}; no rank runs there: for a job that is yet to start ({what})"
    ranks = sum(len(found.search.ranks) + found.search.left_out for found in examined)
    jobs = sorted({found.search.job for found in examined if found.search.job})
    version = f", torch {listed(torch, 3)}" if torch else ""
    return f"{head}; beside {counted(ranks, 'rank')} of {listed(jobs, 3) or 'a job'}{version}"


def _failed_lines(failed: Mapping[str, Problem]) -> list[str]:
    """Hosts with the same reason at once."""
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
