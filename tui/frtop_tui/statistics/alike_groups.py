"""Which groups are alike, so that their ops share a row: `tp:0` to `tp:31`, say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from frtop_probe import wire
from frtop_tui.job.groups import members_of
from frtop_tui.job.naming import GroupKey, without_number


class GroupAcross(NamedTuple):
    """A group as one rank knows it, identified across ranks."""

    key: GroupKey
    label: str
    """Its description; "" without one."""
    axis: tuple[str, int]
    """The description without its number, and the size: the same for all groups of one axis."""
    members: tuple[int, ...]
    exact: bool


class AlikeGroups:
    """Groups of one size are alike if only the number at the end of their descriptions differs.

    Such groups split an axis of a mesh, and each rank is in one of them. If a rank is in two, as in
    `mesh_dim_0` and `mesh_dim_1`, they are different axes, and not alike. Each rank sends all its
    groups at once. So we know this before we count the first op, unless only a few ranks that
    report later are in both.
    """

    def __init__(self) -> None:
        self._known: dict[wire.Group, GroupAcross] = {}
        self._earlier: dict[wire.Group, GroupAcross] = {}
        self._apart: set[tuple[str, int]] = set()

    def of_rank(self, groups: Mapping[int, wire.Group]) -> dict[int, GroupAcross]:
        found = {local: self._across(group) for local, group in groups.items()}
        labels: dict[tuple[str, int], str] = {}
        for one in found.values():
            if labels.setdefault(one.axis, one.label) != one.label:
                self._apart.add(one.axis)
        return found

    def forget(self) -> None:
        """Forgets groups that no rank has had since the last call: a program may make new ones."""
        self._known, self._earlier = {}, self._known

    def name(self, group: GroupAcross) -> tuple[str, int]:
        """A name that alike groups share."""
        axis = group.axis
        return (group.label, axis[1]) if axis in self._apart else axis

    def _across(self, group: wire.Group) -> GroupAcross:
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = self._earlier.get(group) or _identified(group)
        return known


def _identified(group: wire.Group) -> GroupAcross:
    label = group.description if group.description not in ("", "undefined") else ""
    members = members_of(group.ranks)
    axis = without_number(label), len(members)
    key = GroupKey(group.name, group.ranks, group.epoch)
    return GroupAcross(key, label, axis, members, group.exact)
