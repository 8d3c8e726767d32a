"""Ops by module and phase: summed over ranks and slices of time, and as a tree.

Each node of the tree has its own ops, and those of all nodes below it. A profile adds times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from frtop_probe import wire
from frtop_probe.wire.values import storable
from frtop_tui.job.host_gauges import natural
from frtop_tui.job.issuer_words import PHASES
from frtop_tui.job.statistics import ModuleRow
from frtop_tui.statistics.answers import RankAnswer

DEEPEST: Final = 32
"""Most levels of a path; the rest becomes one name. Paths come from programs."""
MOST_MODULES: Final = 20_000
"""Most rows of one slice: each stage of a pipeline has its own modules."""
NO_MODULE: Final = "no module"
SUM: Final = "sum"
"""The root of the tree."""
ModuleKey = tuple[wire.Issuer, str]
"""Issuer and kind of op."""
OpKind = tuple[str, str]
"""Phase and kind of op."""
ModulePhase = tuple[str, str, str]
"""Class of the outermost module, the path below it, and a phase."""


class ModuleSums:
    """Some ops of one kind; `ns` is from issue to end, an upper bound unless `exact`."""

    __slots__ = ("bytes", "count", "exact", "ns", "ranks")

    def __init__(self) -> None:
        self.count = self.bytes = self.ns = 0
        self.exact = True
        self.ranks: set[int] = set()

    def add(
        self, count: int, size: int, ranks: Iterable[int], ns: int = 0, *, exact: bool = True
    ) -> None:
        self.count += count
        self.bytes += size
        self.ranks.update(ranks)
        self.ns += ns
        self.exact = self.exact and exact


def add_modules(sums: dict[ModuleKey, ModuleSums], answer: RankAnswer) -> None:
    """Adds one rank's answer, except ops without an issuer."""
    issuers = answer.issuers
    for row in answer.statistics.modules:
        if not 0 < row.issuer <= len(issuers):
            continue
        key = issuers[row.issuer - 1], row.kind
        found = sums.get(key)
        if found is None:
            if len(sums) >= MOST_MODULES:
                continue
            found = sums[key] = ModuleSums()
        found.add(row.count, row.bytes, (answer.rank,))


def module_rows(slices: Iterable[Mapping[ModuleKey, ModuleSums]]) -> tuple[ModuleRow, ...]:
    total: defaultdict[ModuleKey, ModuleSums] = defaultdict(ModuleSums)
    for sums in slices:
        for key, one in sums.items():
            total[key].add(one.count, one.bytes, one.ranks, one.ns, exact=one.exact)
    return tuple(
        ModuleRow(
            issuer,
            kind,
            tuple(sorted(one.ranks)),
            storable(one.count),
            storable(one.bytes),
            storable(one.ns),
            one.exact,
        )
        for (issuer, kind), one in total.items()
        if one.count > 0
    )


def _sums() -> defaultdict[OpKind, ModuleSums]:
    return defaultdict(ModuleSums)


@dataclass(slots=True)
class ModuleNode:
    """A module, or a part of one: a bucket of DDP, a compiled graph. The root has no path.

    `own` counts what it issued itself, `total` includes all below. So do `self_ns` and `total_ns`,
    times on threads of the host by phase.
    """

    name: str
    path: str
    depth: int
    is_part: bool = False
    own: defaultdict[OpKind, ModuleSums] = field(default_factory=_sums)
    total: defaultdict[OpKind, ModuleSums] = field(default_factory=_sums)
    self_ns: Counter[str] = field(default_factory=Counter)
    total_ns: Counter[str] = field(default_factory=Counter)
    children: dict[str, ModuleNode] = field(default_factory=dict)

    def child(self, name: str, *, is_part: bool = False) -> ModuleNode:
        """The child with this name, created if necessary."""
        found = self.children.get(name)
        if found is None:
            path = f"{self.path}.{name}" if self.path else name
            found = self.children[name] = ModuleNode(name, path, self.depth + 1, is_part)
        return found

    @property
    def ranks(self) -> list[int]:
        """The ranks that issued any of it."""
        return sorted({rank for one in self.total.values() for rank in one.ranks})

    def count(self, phase: str) -> int:
        """Ops of a phase, including all below."""
        return sum(one.count for (of, _), one in self.total.items() if of == phase)

    def size(self) -> int:
        """Bytes of all ops, including all below."""
        return sum(one.bytes for one in self.total.values())

    def took(self) -> tuple[int, bool]:
        """Time of all ops from issue to end, including all below, and whether that is exact."""
        found = self.total.values()
        return sum(one.ns for one in found), all(one.exact for one in found)

    def kinds(self) -> list[tuple[str, int]]:
        """Kinds of ops with their counts, the most frequent first."""
        found: Counter[str] = Counter()
        for (_, kind), one in self.total.items():
            found[kind] += one.count
        return found.most_common()

    def walk(self, folded: frozenset[str] = frozenset()) -> Iterator[ModuleNode]:
        """This node and those below, in order; nothing below folded ones."""
        rest = [self]
        while rest:
            node = rest.pop()
            yield node
            if node.path not in folded:
                rest += reversed(node.sorted_children())

    def sorted_children(self) -> list[ModuleNode]:
        """Modules before their parts; `layers.2` before `layers.10`; what has no module last."""
        return sorted(
            self.children.values(),
            key=lambda one: (one.path == NO_MODULE, one.is_part, natural(one.name)),
        )


def module_tree(
    rows: Iterable[ModuleRow],
    others: Iterable[tuple[str, str]] = (),
    self_ns: Mapping[ModulePhase, int] | None = None,
) -> ModuleNode:
    """The sum of all, with the outermost modules below it, then what belongs to none.

    Args:
        rows: ops.
        others: modules that are in the tree anyway: class of the outermost one, and path.
        self_ns: times without what is below.
    """
    top = ModuleNode(SUM, "", -1)
    for root, path in others:
        _nodes(top, root, path)
    for row in rows:
        issuer = row.issuer
        nodes = _nodes(top, issuer.root, issuer.path)
        if issuer.part:
            nodes.append(nodes[-1].child(issuer.part, is_part=True))
        key = issuer.phase, row.kind
        for sums in (nodes[-1].own, *(node.total for node in nodes)):
            sums[key].add(row.count, row.bytes, row.ranks, row.ns, exact=row.exact)
    for (root, path, phase), ns in (self_ns or {}).items():
        nodes = _nodes(top, root, path)
        nodes[-1].self_ns[phase] += ns
        for node in nodes:
            node.total_ns[phase] += ns
    return top


def _nodes(top: ModuleNode, root: str, path: str) -> list[ModuleNode]:
    """The node of a module, after all that contain it."""
    names = [root] if root else []
    names += [one for one in path.split(".", DEEPEST - 1) if one]
    nodes = [top]
    for name in names or [NO_MODULE]:
        nodes.append(nodes[-1].child(name))
    return nodes


def phases_of(node: ModuleNode) -> list[str]:
    """The phases that issued anything, in the order of a step."""
    found = {phase for phase, _ in node.total}
    return [*(one for one in PHASES if one in found), *sorted(found - PHASES.keys())]
