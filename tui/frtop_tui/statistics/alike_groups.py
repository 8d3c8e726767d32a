"""Which groups are alike, so that their ops are told together: `tp:0` to `tp:31` in one row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from frtop_probe import wire
from frtop_tui.job.groups import members_of
from frtop_tui.job.naming import GroupKey, without_number


class GroupAcross(NamedTuple):
    """A group as one rank knows it, across ranks."""

    key: GroupKey
    label: str
    """Its description; "" without one."""
    members: tuple[int, ...]
    exact: bool

    @property
    def axis(self) -> tuple[str, int]:
        """What groups of one axis share: the description without its number, and the size."""
        return without_number(self.label), len(self.members)


class AlikeGroups:
    """Groups whose descriptions differ in the number at their end are alike, if of one size.

    Those of a mesh's axis hold every rank once: where one rank is in two of them, as in
    `mesh_dim_0` and `mesh_dim_1`, they are not alike. Each rank tells of all its groups at once,
    so that is known before the first op is counted, unless groups overlap for a few ranks only.
    """

    def __init__(self) -> None:
        self._known: dict[wire.Group, GroupAcross] = {}
        self._apart: set[tuple[str, int]] = set()

    def of_rank(self, groups: Mapping[int, wire.Group]) -> dict[int, GroupAcross]:
        """The groups of a rank by its own numbers of them."""
        found = {local: self._across(group) for local, group in groups.items()}
        labels: dict[tuple[str, int], str] = {}
        for one in found.values():
            if labels.setdefault(one.axis, one.label) != one.label:
                self._apart.add(one.axis)
        return found

    def name(self, group: GroupAcross) -> tuple[str, int]:
        """The same for all groups that are alike."""
        axis = group.axis
        return (group.label, axis[1]) if axis in self._apart else axis

    def _across(self, group: wire.Group) -> GroupAcross:
        known = self._known.get(group)
        if known is None:
            label = group.description if group.description not in ("", "undefined") else ""
            key = GroupKey(group.name, group.ranks, group.epoch)
            known = GroupAcross(key, label, members_of(group.ranks), group.exact)
            self._known[group] = known
        return known
