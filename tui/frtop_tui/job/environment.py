"""Versions and settings of a job's ranks, and where they differ: no stack shows that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from frtop_tui.job.model import Rank
from frtop_tui.job.naming import folded

OWN: Final = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
"""Settings for which the launcher gives each rank its own value."""
OWN_PREFIX: Final = "SLURM_"
UNSET: Final = "not set"
VERSIONS: Final = frozenset({"torch", "python", "NCCL"})
"""Every rank has these: a missing value is not reported yet, so it is no difference."""
_LONGEST: Final = 60
_CONTEXT: Final = 20


@dataclass(frozen=True, slots=True)
class Environment:
    """By name: the value of all ranks, or, where they differ, the folded ranks by value.

    `members` lists these ranks one by one, `unknown` those whose settings nobody could read.
    """

    common: Mapping[str, str]
    different: Mapping[str, Mapping[str, str]]
    members: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    unknown: tuple[int, ...] = ()


def environment(views: Iterable[Rank]) -> Environment:
    """Compares the settings of all ranks with a recorder, including `torch`, `python` and `NCCL`.

    Settings of other ranks are not read.
    """
    alike: dict[tuple[object, ...], list[Rank]] = defaultdict(list)  # most ranks are
    unknown: list[int] = []
    for view in views:
        who = view.identity
        if who.prepared:
            alike[who.torch, who.python, who.nccl, who.settings].append(view)
        else:
            unknown.append(view.rank)
    values: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    ranks: list[int] = []
    for some in alike.values():
        numbers = [view.rank for view in some]
        ranks += numbers
        for name, value in _named(some[0]).items():
            values[name][value] += numbers
    common: dict[str, str] = {}
    members: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, by_value in sorted(values.items()):
        unset = set() if name in VERSIONS else set(ranks).difference(*by_value.values())
        if len(by_value) == 1 and not unset:
            common[name] = next(iter(by_value))
            continue
        members[name] = {value: tuple(sorted(some)) for value, some in by_value.items()}
        if unset:
            members[name][UNSET] = tuple(sorted(unset))
    different = {
        name: {value: folded(some) for value, some in by_value.items()}
        for name, by_value in members.items()
    }
    return Environment(common, different, members, tuple(unknown))


def is_own(name: str) -> bool:
    """Whether the launcher gives each rank its own value of a setting."""
    return name in OWN or name.startswith(OWN_PREFIX)


def differing(found: Environment) -> list[str]:
    """Sentences about settings that differ and should not."""
    return [
        f"{name} differs: "
        + ", ".join(map("{} on {}".format, excerpts(tuple(by_value)), by_value.values()))
        for name, by_value in found.different.items()
        if not is_own(name)
    ]


def excerpts(values: Sequence[str]) -> list[str]:
    """Cuts long values of one setting so that the place from which they differ is shown."""
    columns = enumerate(zip(*values, strict=False))
    common = next((n for n, letters in columns if len(set(letters)) > 1), min(map(len, values)))
    first = max(0, common - _CONTEXT)
    return [
        value
        if len(value) <= _LONGEST
        else f"{'…' if first else ''}{value[first : first + _LONGEST]}"
        f"{'…' if len(value) > first + _LONGEST else ''}"
        for value in values
    ]


def _named(view: Rank) -> dict[str, str]:
    who = view.identity
    versions = {"torch": who.torch, "python": who.python, "NCCL": who.nccl}
    return {name: value for name, value in versions.items() if value} | dict(who.settings)
