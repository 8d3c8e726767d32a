"""Versions and settings of a job's ranks, and where they differ: no stack shows that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from frtop_tui.job.model import Rank
from frtop_tui.job.naming import folded, shortened

OWN: Final = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
"""Settings of which each rank gets its own value from the launcher."""
OWN_PREFIX: Final = "SLURM_"
UNSET: Final = "not set"
VERSIONS: Final = frozenset({"torch", "python"})
"""Every rank has these: a missing value is not reported yet, and no difference."""


@dataclass(frozen=True, slots=True)
class Environment:
    """By name: the value of all ranks, or folded ranks by value where they differ."""

    common: Mapping[str, str]
    different: Mapping[str, Mapping[str, str]]


def environment(views: Iterable[Rank]) -> Environment:
    """Compares the settings of all ranks with a recorder, `torch` and `python` among them.

    Of the others no settings are read.
    """
    values: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    ranks: list[int] = []
    known: dict[tuple[object, ...], dict[str, str]] = {}  # most ranks are alike
    for view in views:
        who = view.identity
        if not who.prepared:
            continue
        ranks.append(view.rank)
        key = (who.torch, who.python, who.settings)
        for name, value in known.setdefault(key, _named(view)).items():
            values[name][value].append(view.rank)
    common: dict[str, str] = {}
    different: dict[str, dict[str, str]] = {}
    for name, by_value in sorted(values.items()):
        unset = set() if name in VERSIONS else set(ranks).difference(*by_value.values())
        if len(by_value) == 1 and not unset:
            common[name] = next(iter(by_value))
            continue
        ranks_by_value = {value: folded(members) for value, members in by_value.items()}
        different[name] = ranks_by_value | ({UNSET: folded(unset)} if unset else {})
    return Environment(common, different)


def differing(found: Environment) -> list[str]:
    """Sentences about settings that differ and should not."""
    return [
        f"{name} differs: " + ", ".join(f"{shortened(v)} on {on}" for v, on in by_value.items())
        for name, by_value in found.different.items()
        if name not in OWN and not name.startswith(OWN_PREFIX)
    ]


def _named(view: Rank) -> dict[str, str]:
    who = view.identity
    versions = {"torch": who.torch, "python": who.python}
    return {name: value for name, value in versions.items() if value} | dict(who.settings)
