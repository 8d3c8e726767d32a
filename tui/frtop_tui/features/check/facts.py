"""What a plan can speak of: a job's groups, its settings, and what each step of each rank has.

Pure. Ops are counted step by step, from the histories of the ranks. A step of which something was
not seen does not count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Final, Generic, NamedTuple, TypeVar

from frtop_probe import wire
from frtop_probe.history_columns import length, unpack_column
from frtop_probe.statistics.op_bytes import WITHOUT_DATA, op_bytes
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.environment import Environment, environment
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import group_label, printable, without_number

FEWEST: Final = 3
"""Complete steps of a rank, at least: its first ones may differ from the rest."""
WARM_UP: Final = 2
"""The first steps never count: DDP forms its buckets anew after the first one."""
MOST_STEPS: Final = 50
"""The newest steps of a rank that count."""
MOST_SILENT: Final = 65_536
"""Ranks that never reported, whatever world size a job claims."""
NO_STEP: Final = "no step has ended yet"
NO_RECORDER: Final = "no recorder"
UNREPORTED: Final = "it has not reported"
UNNAMED: Final = "unnamed of {}"
"""Groups without a description, by their size."""

Where = TypeVar("Where")
OpsKey = tuple[str, str]
"""The name of a set of groups, and a kind of op."""
_Kind = tuple[int, int, int]
"""Group, signature, whether it is a pseudo-op: what ops of a rank have in common."""
_COLUMNS: Final = ("issued_ns", "sequence", "group", "signature", "pseudo")


class _Ops(NamedTuple):
    """The ops of a rank by field."""

    issued_ns: list[int]
    sequence: list[int]
    kind: list[_Kind]

    def in_order(self) -> _Ops:
        """By the time of issue; threads may have numbered a few of them otherwise."""
        if self.issued_ns == sorted(self.issued_ns):
            return self
        order = sorted(range(len(self.issued_ns)), key=self.issued_ns.__getitem__)
        issued, sequence, kind = self
        return _Ops(
            [issued[n] for n in order], [sequence[n] for n in order], [kind[n] for n in order]
        )

    def lost(self) -> list[tuple[int, int]]:
        """Between which times ops cannot be read: their numbers are missing."""
        numbered = sorted(zip(self.sequence, self.issued_ns, strict=True))
        if numbered[-1][0] - numbered[0][0] < len(numbered):
            return []
        return [
            (min(before, after), max(before, after))
            for (first, before), (second, after) in pairwise(numbered)
            if second - first > 1
        ]


class OpSums(NamedTuple):
    """The ops of one kind in a step of one rank. `bytes` is None if a size is not known."""

    ops: int
    bytes: int | None
    dtypes: frozenset[str]

    def plus(self, other: OpSums) -> OpSums:
        known = self.bytes is not None and other.bytes is not None
        total = (self.bytes or 0) + (other.bytes or 0) if known else None
        return OpSums(self.ops + other.ops, total, self.dtypes | other.dtypes)


NO_OPS: Final = OpSums(0, 0, frozenset())


@dataclass(frozen=True, slots=True)
class CompleteStep(Generic[Where]):
    """One step of one rank: how long it took, and its ops by group, or set of groups, and kind."""

    number: int
    took_ns: int
    ops: Mapping[tuple[Where, str], OpSums]


RankSteps = tuple[CompleteStep[Identifier], ...]
"""The complete steps of one rank, oldest first."""


def steps_of_history(history: wire.History, groups: Mapping[int, wire.Group]) -> RankSteps:
    """The steps in the history of a live rank, which has these groups.

    Raises:
        ValueError: it has columns that do not fit together.
    """
    columns = history.columns
    if columns is None:
        return ()
    rows = length(columns)
    issued, sequence, *kinds = (unpack_column(getattr(columns, name), rows) for name in _COLUMNS)
    signatures = dict(enumerate(history.signatures, 1))
    ops = _Ops(issued, sequence, list(zip(*kinds, strict=True)))
    return _steps(ops, _Kinds(signatures, groups), history.marks)


def steps_of_file(view: JudgedRank) -> RankSteps:
    """The steps of a rank in a capture or a black box."""
    snapshot = view.snapshot
    if snapshot is None:
        return ()
    signatures = {id(op.signature): op.signature for op in snapshot.ops if op.signature is not None}
    dated = [op for op in snapshot.ops if op.issued_ns > 0]
    ops = _Ops(
        [op.issued_ns for op in dated],
        [op.sequence for op in dated],
        [(op.group, id(op.signature), int(op.pseudo)) for op in dated],
    )
    return _steps(ops, _Kinds(signatures, view.groups), snapshot.marks)


class _Kinds:
    """What the ops of a kind are, looked up once: group, kind of op, bytes and dtypes."""

    def __init__(
        self, signatures: Mapping[int, wire.Signature], groups: Mapping[int, wire.Group]
    ) -> None:
        self._signatures = signatures
        self._groups = groups
        self._known: dict[_Kind, tuple[tuple[Identifier, str], OpSums] | None] = {}

    def sums(self, counts: Iterable[tuple[_Kind, int]]) -> dict[tuple[Identifier, str], OpSums]:
        """The ops of a step, given how many of each kind it has."""
        found: dict[tuple[Identifier, str], OpSums] = {}
        for kind, count in counts:
            if (one := self._of(kind)) is not None:
                where, each = one
                size = None if each.bytes is None else count * each.bytes
                total = OpSums(count, size, each.dtypes)
                found[where] = found[where].plus(total) if where in found else total
        return found

    def _of(self, kind: _Kind) -> tuple[tuple[Identifier, str], OpSums] | None:
        """None for what is no op of a group."""
        if kind not in self._known:
            self._known[kind] = self._look_up(kind)
        return self._known[kind]

    def _look_up(self, kind: _Kind) -> tuple[tuple[Identifier, str], OpSums] | None:
        group, place, pseudo = kind
        known = self._groups.get(group)
        if pseudo or known is None:
            return None
        signature = self._signatures.get(place)
        if signature is None:
            return (identifier(known), "?"), OpSums(1, None, frozenset())
        specs = () if signature.kind in WITHOUT_DATA else signature.inputs or signature.outputs
        dtypes = frozenset(printable(one.dtype) for one in specs or ())
        size = op_bytes(signature, len(members_of(known.ranks)))
        return (identifier(known), printable(signature.kind)), OpSums(1, size, dtypes)


def _steps(ops: _Ops, known: _Kinds, marks: Iterable[wire.Mark]) -> RankSteps:
    """The complete steps: ops were seen from before each one until after it, and all inside.

    Marks are read after the ops, so the last step that has ended may lack some of its own. Steps
    with the same ops share them.
    """
    if not ops.issued_ns:
        return ()
    issued, _, kinds = ops = ops.in_order()
    lost = ops.lost()
    ends = sorted(
        (one.end_ns, one.number) for one in marks if one.kind == "step" and one.end_ns > 0
    )
    complete = [
        (begin, end, number)
        for (begin, _), (end, number) in pairwise(ends)
        if issued[0] <= begin and end < issued[-1] and number > WARM_UP
        and not any(since <= end and begin <= until for since, until in lost)
    ]  # fmt: skip
    sums: dict[frozenset[tuple[_Kind, int]], Mapping[tuple[Identifier, str], OpSums]] = {}
    found = []
    for begin, end, number in complete[-MOST_STEPS:]:
        inside = kinds[bisect_right(issued, begin) : bisect_right(issued, end)]
        counts = frozenset(Counter(inside).items())
        if counts not in sums:
            sums[counts] = known.sums(counts)
        found.append(CompleteStep(number, end - begin, sums[counts]))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of a job. Groups are in sets: those whose description has the same name.

    `steps` has the ranks of which enough steps were seen, `unknown` says why the others are not
    among them. `silent` are ranks of which nothing is known.
    """

    job: wire.Job | None
    world: int  # 0: not known
    groups: Mapping[str, tuple[GroupView, ...]]
    members: Mapping[str, frozenset[int]]
    settings: Environment
    steps: Mapping[int, tuple[CompleteStep[str], ...]] = field(default_factory=dict)
    unknown: Mapping[int, str] = field(default_factory=dict)
    silent: tuple[int, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """All of its ranks."""
        return tuple(sorted({*self.steps, *self.unknown}))


def facts_of(
    frame: Frame, read: Mapping[int, RankSteps], problems: Mapping[int, str] | None = None
) -> JobFacts:
    """The facts of a job.

    Args:
        frame: what is known of its ranks.
        read: the steps of ranks.
        problems: why those of other ranks could not be read.
    """
    world = frame.job.world_size if frame.job is not None else 0
    names = _names(frame)
    sets: defaultdict[str, list[GroupView]] = defaultdict(list)
    members: defaultdict[str, set[int]] = defaultdict(set)
    for group in frame.groups:
        name = names[identifier(group.key)]
        sets[name].append(group)
        members[name].update(group.members)
    steps: dict[int, tuple[CompleteStep[str], ...]] = {}
    unknown: dict[int, str] = {}
    for rank, view in frame.ranks.items():
        found = read.get(rank, ())
        if len(found) >= FEWEST:
            steps[rank] = _named(found, names)
        else:
            unknown[rank] = (problems or {}).get(rank) or why_unknown(view, len(found))
    silent = tuple(islice((n for n in range(world) if n not in frame.ranks), MOST_SILENT))
    unknown |= dict.fromkeys(silent, UNREPORTED)
    return JobFacts(
        frame.job, world,
        {name: tuple(several) for name, several in sorted(sets.items())},
        {name: frozenset(several) for name, several in members.items()},
        environment(frame.ranks.values()), steps, unknown, silent,
    )  # fmt: skip


def why_unknown(view: JudgedRank, steps: int) -> str:
    """Why too few complete steps of a rank were seen."""
    if not view.identity.prepared:
        return NO_RECORDER
    ended = view.status.step if view.status is not None else 0
    if not ended and not steps:
        return NO_STEP
    if ended > WARM_UP + FEWEST + 1:
        return f"{steps} of {FEWEST} complete steps are recorded: its ring has room for no more"
    return f"{steps} of {FEWEST} steps have ended since the first {WARM_UP}"


def _named(steps: RankSteps, names: Mapping[Identifier, str]) -> tuple[CompleteStep[str], ...]:
    """The steps of a rank by the names of its groups."""
    known: dict[int, Mapping[OpsKey, OpSums]] = {}
    for step in steps:
        if id(step.ops) in known:
            continue
        sums: dict[OpsKey, OpSums] = {}
        for (group, kind), one in step.ops.items():
            key = names.get(group) or UNNAMED.format(len(members_of(group[1]))), kind
            sums[key] = sums[key].plus(one) if key in sums else one
        known[id(step.ops)] = sums
    return tuple(CompleteStep(one.number, one.took_ns, known[id(one.ops)]) for one in steps)


def _names(frame: Frame) -> dict[Identifier, str]:
    """The name of each group's set: its description without its number.

    If a rank is in two such groups, as in `mesh_dim_0` and `mesh_dim_1`, the number is a part of
    the name.
    """
    descriptions: dict[Identifier, str] = {}
    for view in frame.ranks.values():
        for group in view.groups.values():
            descriptions[identifier(group)] = group_label("", group.description)
    for known in frame.groups:
        descriptions[identifier(known.key)] = group_label("", known.description)
    of_rank: dict[tuple[str, int], str] = {}
    apart = set()
    for (_, ranks, _), label in descriptions.items():
        stem = without_number(label)
        for rank in members_of(ranks):
            if of_rank.setdefault((stem, rank), label) != label:
                apart.add(stem)
    return {
        key: printable(label if without_number(label) in apart else without_number(label))
        or UNNAMED.format(len(members_of(key[1])))
        for key, label in descriptions.items()
    }
