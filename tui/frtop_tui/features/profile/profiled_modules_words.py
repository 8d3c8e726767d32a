"""A profile by module as text and as JSON, at the levels of CommDebugMode."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frtop_tui.features.profile.model import (
    ModelDescription,
    ModuleDescription,
    ParameterDescription,
)
from frtop_tui.features.profile.module_ops import ModuleOp, OpsAndTimes
from frtop_tui.job.issuer_words import PHASES
from frtop_tui.job.naming import folded, printable
from frtop_tui.job.statistics import ModuleRow
from frtop_tui.job.units import byte_size, timing
from frtop_tui.statistics.module_tree import NO_MODULE, ModuleNode, module_tree
from frtop_tui.text.module_words import TITLE, labelled, took_words, tree_document, tree_lines

_OPERATIONS: Final = {"backward": "backward", "recompute": "checkpointing"}
"""Where CommDebugMode's dump has the ops of a phase; those of all others are in a forward."""
_BETWEEN_SHAPES: Final = re.compile(r"(?<=\]) (?=\[)")
LEVELS: Final = (
    TITLE,
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


@dataclass(frozen=True, slots=True)
class ProfiledModules:
    """Some ranks together: collectives, ops of torch, and the models of ranks that have one."""

    ranks: tuple[int, ...]
    rows: tuple[ModuleRow, ...]
    host: OpsAndTimes
    models: Mapping[int, ModelDescription]
    notes: tuple[str, ...] = ()

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
    return [*map(printable, lines), "", *tree_lines(tree.top, tree.lines)]


def profiled_document(found: ProfiledModules, level: int) -> dict[str, Any]:
    """The tree as values of JSON."""
    tree = _Tree(found, level)
    return tree_document(
        tree.top, tree.facts, level=level, levels=_level_words(level), ranks=list(found.ranks),
        recorded=found.recorded, notes=list(_notes(found, level)),
    )  # fmt: skip


class _Tree:
    """The tree, and what is known about each module besides collectives and times."""

    def __init__(self, found: ProfiledModules, level: int) -> None:
        self._level = level
        self._ops: defaultdict[str, Counter[ModuleOp]] = defaultdict(Counter)
        self._op_ns = found.host.op_ns
        others: dict[tuple[str, str], None] = {}
        for op, count in found.host.ops.items():
            if level and op.is_at(level):
                self._ops[op.module or NO_MODULE][op] += count
                others[_split(op.module)] = None
        self._modules: dict[str, ModuleDescription] = {}
        for _, model in sorted(found.models.items()) if level else ():
            for one in model.modules:
                others[one.root, one.path] = None
                path = ".".join(filter(None, (one.root, one.path)))
                self._modules.setdefault(path, one)
        times = {(*_split(module), phase): ns for (module, phase), ns in found.host.self_ns.items()}
        self.top = module_tree(found.rows, others, times)

    def facts(self, node: ModuleNode) -> dict[str, Any]:
        """What the JSON of a node has besides collectives."""
        known = self._modules.get(node.path)
        parameters = known.parameters if known else ()
        return {
            "module_type": known.type if known else "",
            # CommDebugMode has those that are DTensors.
            "parameters": [[one.name, one.placements] for one in parameters if one.placements],
            "tensors": [_parameter(one) for one in parameters],
            "host_ns": {
                phase: {"total": ns, "self": node.self_ns[phase]}
                for phase, ns in node.total_ns.items()
            },
            **{
                f"operations_{name}": [
                    self._operation(op, count)
                    for op, count in sorted(self._ops.get(node.path, {}).items())
                    if _OPERATIONS.get(op.phase, "forward") == name
                ]
                for name in ("forward", "backward", "checkpointing")
            },
        }

    def _operation(self, op: ModuleOp, count: int) -> dict[str, Any]:
        """All calls of one op, as CommDebugMode has each; it knows the shapes of DTensors only."""
        return {
            "name": labelled(op.name, op.phase, f"{count:,} calls" if count > 1 else ""),
            "input_shape": _BETWEEN_SHAPES.split(op.shapes) if op.shapes else [],
            "input_sharding": [],
            "device_mesh": "",
            "is_bw": op.phase in _OPERATIONS,
            "is_activation_checkpointing": op.phase == "recompute",
            "op": op.name,
            "phase": op.phase,
            "count": count,
            "of_dtensors": op.of_dtensors,
            "ns": self._op_ns[op],
        }

    def lines(self, node: ModuleNode) -> Iterator[str]:
        """The details below a node's line; none at level 0."""
        if not self._level or not node.path:
            return
        known = self._modules.get(node.path)
        if known:
            yield known.type
            yield from map(_parameter_words, known.parameters)
        by_phase: defaultdict[str, list[str]] = defaultdict(list)
        for phase, ns in node.total_ns.items():
            own = node.self_ns[phase]
            by_phase[phase].append(f"{timing(ns)} total, {timing(own)} self")
        for (phase, kind), one in sorted(node.own.items(), key=lambda own: -own[1].count):
            words = f"{kind} {one.count:,} ({byte_size(one.bytes or None)}"
            time = f", {took_words(one.ns, one.exact)}" if one.ns else ""
            by_phase[phase].append(f"{words}{time})")
        for of_dtensors in (True, False):
            for phase, words in self._op_words(node, of_dtensors=of_dtensors):
                by_phase[phase].append(words)
        for phase in sorted(by_phase, key=lambda one: (*PHASES, one).index(one)):
            for words in by_phase[phase]:
                yield f"{PHASES.get(phase, phase)}: {words}"

    def _op_words(self, node: ModuleNode, *, of_dtensors: bool) -> Iterator[tuple[str, str]]:
        """By phase: its ops on DTensors or on others, the most frequent first."""
        names: defaultdict[str, Counter[str]] = defaultdict(Counter)
        times: Counter[tuple[str, str]] = Counter()
        for op, count in self._ops.get(node.path, {}).items():
            if op.of_dtensors is of_dtensors:
                names[op.phase][op.name] += count
                times[op.phase, op.name] += self._op_ns[op]
        for phase, counts in names.items():
            words = ", ".join(
                f"{name} {count:,} ({timing(times[phase, name])})"
                for name, count in counts.most_common()
            )
            yield phase, f"{'on DTensors: ' if of_dtensors else ''}{words}"


def _split(module: str) -> tuple[str, str]:
    root, _, path = module.partition(".")
    return root, path


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
