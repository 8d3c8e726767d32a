"""Ops by module as a tree: each node has its own ops, and those of all nodes below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from frtop_probe import wire
from frtop_tui.job.host_gauges import natural
from frtop_tui.job.issuer_words import PHASES
from frtop_tui.job.statistics import ModuleRow

DEEPEST: Final = 32
"""Most levels of a path; the rest becomes one name. Paths come from programs."""
NO_MODULE: Final = "no module"
OpKind = tuple[str, str]
"""Phase and kind of op."""


@dataclass(slots=True)
class ModuleNode:
    """A module, or a part of one: a bucket of DDP, a compiled graph.

    `own` and `own_bytes` count what it issued itself, `total` and `total_bytes` include all below.
    """

    name: str
    path: str
    depth: int
    is_part: bool = False
    own: Counter[OpKind] = field(default_factory=Counter)
    own_bytes: Counter[OpKind] = field(default_factory=Counter)
    total: Counter[OpKind] = field(default_factory=Counter)
    total_bytes: Counter[OpKind] = field(default_factory=Counter)
    ranks: set[int] = field(default_factory=set)
    children: dict[str, ModuleNode] = field(default_factory=dict)

    def child(self, name: str, *, is_part: bool = False) -> ModuleNode:
        """The child with this name, created if necessary."""
        found = self.children.get(name)
        if found is None:
            path = f"{self.path}.{name}" if self.path else name
            found = self.children[name] = ModuleNode(name, path, self.depth + 1, is_part)
        return found

    def count(self, phase: str) -> int:
        """Ops of a phase, including all below."""
        return sum(count for (of, _), count in self.total.items() if of == phase)

    def size(self, phase: str = "") -> int:
        """Their bytes; without a phase, those of all phases."""
        return sum(n for (of, _), n in self.total_bytes.items() if phase in ("", of))

    def kinds(self) -> list[tuple[str, int]]:
        """Kinds of ops with their counts, the most frequent first."""
        found: Counter[str] = Counter()
        for (_, kind), count in self.total.items():
            found[kind] += count
        return found.most_common()

    def walk(self, folded: frozenset[str] = frozenset()) -> Iterator[ModuleNode]:
        """This node and those below, ordered by name; nothing below folded ones."""
        rest = [self]
        while rest:
            node = rest.pop()
            yield node
            if node.path not in folded:
                rest += reversed(node.sorted_children())

    def sorted_children(self) -> list[ModuleNode]:
        """Modules before their parts; `layers.2` before `layers.10`."""
        return sorted(self.children.values(), key=lambda one: (one.is_part, natural(one.name)))


def module_roots(
    rows: Iterable[ModuleRow], others: Iterable[tuple[str, str]] = ()
) -> list[ModuleNode]:
    """The outermost modules, then ops that belong to none."""
    top = ModuleNode("", "", -1)
    for root, path in others:
        node = top
        for name in _names(root, path):
            node = node.child(name)
    for row in rows:
        issuer = row.issuer
        nodes = [top]
        for name in _names(issuer.root, issuer.path):
            nodes.append(nodes[-1].child(name))
        if issuer.part:
            nodes.append(nodes[-1].child(issuer.part, is_part=True))
        key = issuer.phase, row.kind
        nodes[-1].own[key] += row.count
        nodes[-1].own_bytes[key] += row.bytes
        for node in nodes[1:]:
            node.total[key] += row.count
            node.total_bytes[key] += row.bytes
            node.ranks.update(row.ranks)
    return sorted(top.children.values(), key=lambda one: (one.name == NO_MODULE, one.name))


def path_of(issuer: wire.Issuer) -> str:
    """The path of the node for an issuer's ops."""
    return ".".join(filter(None, (*_names(issuer.root, issuer.path), issuer.part)))


def _names(root: str, path: str) -> list[str]:
    names = [root] if root else []
    names += [one for one in path.split(".", DEEPEST - 1) if one]
    return names or [NO_MODULE]


def phases_of(roots: Iterable[ModuleNode]) -> list[str]:
    """The phases that issued anything, in the order of a step."""
    found = {phase for root in roots for phase, _ in root.total}
    return [*(one for one in PHASES if one in found), *sorted(found - PHASES.keys())]
