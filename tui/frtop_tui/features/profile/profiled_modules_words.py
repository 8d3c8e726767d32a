"""A profile by module as text and as JSON, at the levels of CommDebugMode."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frtop_tui.features.profile.model import (
    ModelDescription,
    ModuleDescription,
    ParameterDescription,
)
from frtop_tui.features.profile.module_sums import ModuleOp, OpsAndTimes
from frtop_tui.job.issuer_words import PHASES
from frtop_tui.job.naming import folded, printable
from frtop_tui.job.statistics import ModuleRow
from frtop_tui.job.units import byte_size, timing
from frtop_tui.statistics.module_sums import ModuleKey
from frtop_tui.statistics.module_tree import NO_MODULE, ModuleNode, module_roots, path_of
from frtop_tui.text.module_words import INDENT, module_node

LEVELS: Final = (
    "collectives by module",
    "and types, parameters, ops on DTensors",
    "and all ops but trivial ones",
    "and all ops",
)
"""What each level of CommDebugMode adds to the previous one."""
NO_LABELS: Final = (
    "modules were not recorded: `frtop recorder --modules on` before the profile, or start the job"
    " with `frtop run --modules`"
)
TIMES: Final = (
    "times are of threads on the host, of all calls and ranks together, without what GPUs do. A"
    " module's total has all below it, its self time has not. A collective's is from issue to end,"
    " an op's has what the op calls"
)
NO_TIMES: Final = "no times: no call of a module is in the profile; older torchs have no such label"
NO_SHARDINGS: Final = (
    "placements are known of parameters only, as the profile began. An op counts as one on DTensors"
    " where torch says that a subclass of tensors took it over; where that only waited for a"
    " collective, it may be counted wrongly"
)
NO_DTENSORS: Final = (
    "no op is known as one on DTensors, though parameters are such: none was, or this torch does"
    " not say which. Then what such ops call is not counted either"
)


@dataclass(slots=True)
class CollectiveTime:
    """Total time of ops of one kind, from issue to end; if not `exact`, an upper bound."""

    ns: int = 0
    exact: bool = True

    def add(self, ns: int, *, is_exact: bool) -> None:
        self.ns += ns
        self.exact = self.exact and is_exact


@dataclass(frozen=True, slots=True)
class ProfiledModules:
    """Some ranks together: collectives, ops of torch, and the models of ranks that have one."""

    ranks: tuple[int, ...]
    rows: tuple[ModuleRow, ...]
    host: OpsAndTimes
    models: Mapping[int, ModelDescription]
    notes: tuple[str, ...] = ()
    took: Mapping[ModuleKey, CollectiveTime] = field(default_factory=dict)

    @property
    def recorded(self) -> bool:
        """Whether the job was started with modules."""
        return bool(self.models or self.rows)


def profiled_lines(found: ProfiledModules, level: int) -> list[str]:
    """All lines are safe for a terminal."""
    count = len(found.ranks)
    of = f"sum of {count} ranks · " if count > 1 else ""
    lines = [f"profile of {folded(found.ranks)} · {of}level {level}: {_level_words(level)}"]
    lines += [f"note  {one}" for one in _notes(found, level)]
    tree = _Tree(found, level)
    for root in tree.roots:
        lines += ["", *(line for node in root.walk() for line in _node_lines(node, tree))]
    return [printable(line) for line in lines]


def profiled_document(found: ProfiledModules, level: int) -> dict[str, Any]:
    """The tree as values of JSON."""
    tree = _Tree(found, level)
    return {
        "level": level,
        "levels": _level_words(level),
        "ranks": list(found.ranks),
        "recorded": found.recorded,
        "notes": list(_notes(found, level)),
        "modules": [module_node(root, tree.facts) for root in tree.roots],
    }


class _Tree:
    """The nodes, and what is known about each besides its collectives."""

    def __init__(self, found: ProfiledModules, level: int) -> None:
        self.ops: defaultdict[str, Counter[ModuleOp]] = defaultdict(Counter)
        self.op_ns = found.host.op_ns
        for op, count in found.host.ops.items():
            if level and op.is_at(level):
                self.ops[op.module or NO_MODULE][op] += count
        self.modules: dict[str, ModuleDescription] = {}
        others: dict[tuple[str, str], None] = {}
        for _, model in sorted(found.models.items()) if level else ():
            for one in model.modules:
                others[one.root, one.path] = None
                path = ".".join(filter(None, (one.root, one.path)))
                self.modules.setdefault(path, one)
        with_ops = ("" if path == NO_MODULE else path for path in self.ops)
        for module in (*with_ops, *(module for module, _ in found.host.self_ns)):
            top, _, rest = module.partition(".")
            others[top, rest] = None
        self.roots = module_roots(found.rows, others)
        self.took: defaultdict[str, dict[tuple[str, str], CollectiveTime]] = defaultdict(dict)
        for (issuer, kind), took in found.took.items():
            self.took[path_of(issuer)][issuer.phase, kind] = took
        self.self_ns: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for (module, phase), ns in found.host.self_ns.items():
            self.self_ns[module or NO_MODULE][phase] += ns
        self.total_ns: dict[str, Counter[str]] = {}
        for root in self.roots:
            self._add_up(root)

    def _add_up(self, node: ModuleNode) -> Counter[str]:
        """Sums the times of a node and all nodes below it, by phase."""
        total = Counter(self.self_ns.get(node.path, {}))
        for child in node.children.values():
            total.update(self._add_up(child))
        if not node.is_part:
            self.total_ns[node.path] = total
        return total

    def facts(self, node: ModuleNode) -> dict[str, Any]:
        """What the JSON of a node has besides collectives."""
        known = None if node.is_part else self.modules.get(node.path)
        ops = Counter() if node.is_part else self.ops.get(node.path, Counter())
        found: dict[str, Any] = {"module_type": known.type if known else ""}
        parameters = known.parameters if known else ()
        found["parameters"] = [_parameter(one) for one in parameters]
        found["host_ns"] = {
            phase: {"total": ns, "self": self.self_ns[node.path][phase]}
            for phase, ns in self.times(node).items()
        }
        found["collective_ns"] = [
            {"phase": phase, "kind": kind, "ns": took.ns, "exact": took.exact}
            for (phase, kind), took in sorted(self.took.get(node.path, {}).items())
        ]
        for phase in dict.fromkeys(("forward", "backward", *(op.phase for op in ops))):
            found[f"operations_{phase}"] = [
                {"name": op.name, "count": count, "input_shape": op.shapes,
                 "of_dtensors": op.of_dtensors, "ns": self.op_ns[op]}
                for op, count in sorted(ops.items())
                if op.phase == phase
            ]  # fmt: skip
        return found

    def times(self, node: ModuleNode) -> Counter[str]:
        """How long the calls below a node ran on host threads, by phase."""
        return Counter() if node.is_part else self.total_ns[node.path]


def _node_lines(node: ModuleNode, tree: _Tree) -> Iterator[str]:
    known = None if node.is_part else tree.modules.get(node.path)
    yield INDENT * node.depth + node.name + (f"  {known.type}" if known else "")
    before = INDENT * (node.depth + 2)
    for one in known.parameters if known else ():
        yield before + _parameter_words(one)
    by_phase: defaultdict[str, list[str]] = defaultdict(list)
    for phase, ns in tree.times(node).items():
        own = tree.self_ns[node.path][phase]
        by_phase[phase].append(f"{timing(ns)} total, {timing(own)} self")
    for (phase, kind), count in node.own.most_common():
        size = byte_size(node.own_bytes[phase, kind] or None)
        took = tree.took[node.path].get((phase, kind), CollectiveTime(exact=False))
        time = f", {'' if took.exact else 'at most '}{timing(took.ns)}" if took.ns else ""
        by_phase[phase].append(f"{kind} {count:,} ({size}{time})")
    for of_dtensors in (True, False):
        names: defaultdict[str, Counter[str]] = defaultdict(Counter)
        times: Counter[tuple[str, str]] = Counter()
        for op, count in ({} if node.is_part else tree.ops.get(node.path, {})).items():
            if op.of_dtensors is of_dtensors:
                names[op.phase][op.name] += count
                times[op.phase, op.name] += tree.op_ns[op]
        for phase, counts in names.items():
            words = ", ".join(
                f"{name} {count:,} ({timing(times[phase, name])})"
                for name, count in counts.most_common()
            )
            by_phase[phase].append(f"{'on DTensors: ' if of_dtensors else ''}{words}")
    for phase in sorted(by_phase, key=lambda one: (*PHASES, one).index(one)):
        for words in by_phase[phase]:
            yield f"{before}{PHASES.get(phase, phase)}: {words}"


def _parameter_words(one: ParameterDescription) -> str:
    """`weight float32[16,8], (Shard(dim=0),) on tp=2, here [8,8]`."""
    text = f"{one.name} {one.dtype}{_shape(one.shape)}"
    if one.placements:
        text += f", {one.placements} on {one.mesh}, here {_shape(one.local)}"
    return text


def _shape(shape: Iterable[int] | None) -> str:
    return "" if shape is None else f"[{','.join(map(str, shape))}]"


def _parameter(one: ParameterDescription) -> dict[str, Any]:
    return {
        "name": one.name,
        "dtype": one.dtype,
        "shape": one.shape,
        "placements": one.placements,
        "mesh": one.mesh,
        "local_shape": one.local,
    }


def _level_words(level: int) -> str:
    return ", ".join(LEVELS[: level + 1])


def _notes(found: ProfiledModules, level: int) -> Iterator[str]:
    yield from found.notes
    if not found.recorded:
        yield NO_LABELS
        return
    yield TIMES if any(place.module for place in found.host.self_ns) else NO_TIMES
    if level:
        yield NO_SHARDINGS
        if _has_dtensors(found) and not any(op.of_dtensors for op in found.host.ops):
            yield NO_DTENSORS
        if without := [rank for rank in found.ranks if rank not in found.models]:
            yield f"{folded(without)}: modules are not described, so ops of torch are not counted"
    left_out = sum(model.left_out for model in found.models.values())
    if left_out and level:
        yield f"{left_out:,} modules are not described: there are too many"


def _has_dtensors(found: ProfiledModules) -> bool:
    return any(model.has_dtensors for model in found.models.values())
