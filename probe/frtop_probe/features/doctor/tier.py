"""What doctor says: tiers of evidence, their obstacles, and the changes that remove these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe.proc.ptrace_refusal import Change, Obstacle
from frtop_probe.ring.rank_ranges import fold

_MOST_NAMES: Final = 6
Mark = Literal["ok", "closed", "not tried"]
MEMFD: Final = "sudo sysctl vm.memfd_noexec=0"
POD_ENV: Final = 'env: [{{name: {name}, value: "{value}"}}]'


@dataclass(frozen=True, slots=True)
class Tier:
    """One kind of evidence, or something that frtop needs.

    Attributes:
        code: a stable word for programs; `title` is for people.
        tells: what it shows.
        lost: what stays hidden without it.
        basis: the basis of the mark, in a few words.
        notes: worth knowing, but no obstacle.
        is_evidence: without it, part of every job stays hidden from frtop.
    """

    code: str
    title: str
    tells: str
    lost: str
    mark: Mark
    basis: str
    obstacles: tuple[Obstacle, ...] = ()
    notes: tuple[str, ...] = ()
    is_evidence: bool = True


def set_variable(name: str, value: str) -> tuple[Change, ...]:
    return (
        Change("job script", f"export {name}={value}"),
        Change("pod spec", POD_ENV.format(name=name, value=value)),
    )


def merged(obstacles: Iterable[Obstacle]) -> tuple[Obstacle, ...]:
    """Joins ranks with the same obstacle, in order of appearance."""
    found: dict[tuple[str, str, tuple[Change, ...]], list[str]] = {}
    for one in obstacles:
        found.setdefault((one.code, one.text, one.changes), []).extend(one.of)
    return tuple(
        Obstacle(code, text, changes, tuple(dict.fromkeys(of)))
        for (code, text, changes), of in found.items()
    )


def judged(
    code: str,
    title: str,
    *,
    tells: str,
    lost: str,
    obstacles: Iterable[Obstacle],
    basis: str,
    known: bool = True,
    ranks: int = 0,
    notes: Iterable[str] = (),
    is_evidence: bool = True,
) -> Tier:
    """Makes a tier and its mark: any obstacle closes it.

    `known` says whether the trials suffice for ok. `basis` is for a tier without an obstacle.
    """
    found = merged(obstacles)
    if found:
        first = found[0]
        some = 0 < len(first.of) < ranks
        basis = f"{first.code}: {len(first.of)} of {ranks} ranks" if some else first.code
    mark: Mark = "closed" if found else "ok" if known else "not tried"
    return Tier(
        code, title, tells, lost, mark, basis, found, tuple(dict.fromkeys(notes)), is_evidence
    )


def folded(names: Iterable[str]) -> str:
    """`ranks 0-2,4, pid 77`: names of ranks, numbers folded."""
    known = list(dict.fromkeys(names))
    numbers = [int(name[5:]) for name in known if name.startswith("rank ") and name[5:].isdecimal()]
    rest = [name for name in known if not (name.startswith("rank ") and name[5:].isdecimal())]
    folded_numbers = [f"rank{'' if len(numbers) == 1 else 's'} {fold(numbers)}"] if numbers else []
    more = [f"{len(rest) - _MOST_NAMES} more"] if len(rest) > _MOST_NAMES else []
    return ", ".join([*folded_numbers, *rest[:_MOST_NAMES], *more])


def counted(number: int, what: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def exit_status(tiers: Iterable[Tier]) -> int:
    """0; 1 if a closed tier costs evidence."""
    return int(any(tier.mark == "closed" and tier.is_evidence for tier in tiers))
