"""Compares samples between the members of groups: whose bytes differ, and where a NaN came from.

After an op of `EQUAL_AFTER` all members have the same result, bit by bit. Replicas also have equal
gradients before an optimizer's step and equal parameters after it; ranks count as replicas if more
than half of them have the same bytes in everything that was read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from frtop_probe import wire
from frtop_tui.features.tensor_checks.dtypes import DtypeDifference, op_dtypes, step_dtypes
from frtop_tui.features.tensor_checks.loss_scales import ScaleHistory, scale_histories
from frtop_tui.features.tensor_checks.precision import CastEvidence, cast_evidence
from frtop_tui.features.tensor_checks.samples import (
    GroupFigures,
    RankSample,
    figures_by_group,
    members,
)
from frtop_tui.features.tensor_checks.sent_and_received import (
    OF_MESSAGES,
    MessageDifference,
    compare_messages,
    first_bad_message,
)
from frtop_tui.job.groups import Identifier
from frtop_tui.job.rank_sides import RankSide, odd_ranks, sides_of

EQUAL_AFTER: Final = frozenset({
    "all_reduce", "all_reduce_coalesced", "broadcast", "all_gather", "all_gather_into_tensor",
    "all_gather_coalesced", "all_gather_into_tensor_coalesced",
})  # fmt: skip
"""Ops after which all members have equal tensors. After others each has its own."""


@dataclass(frozen=True, slots=True)
class OpDifference:
    """The first op of a group whose results differ between members.

    `odd` differ from the majority; it is empty if there is none. `equal_before` is the last earlier
    number that was sampled and equal on all members, 0 if none was. `changed`: the bytes were read
    at an optimizer's step, so the program may have changed them since the op.
    """

    group: Identifier
    number: int
    kind: str
    step: int
    site: wire.Site | None
    sides: tuple[RankSide, ...]
    odd: tuple[int, ...]
    equal_before: int
    equal_before_step: int
    changed: bool
    differing: int  # ops that differ among those compared
    compared: int
    issuer: wire.Issuer | None = None
    at_ns: int = 0  # operator's clock


@dataclass(frozen=True, slots=True)
class StepDifference:
    """The first step after which replicas differ, in gradients or in parameters."""

    role: str  # "gradient" or "parameter"
    step: int
    odd: tuple[int, ...]
    sides: tuple[RankSide, ...]  # of the first tensor that differs
    names: tuple[str, ...]  # of all that differ in this step
    read: int  # how many were read
    equal_before: int  # the last step before it that was equal; -1 for none
    optimizer: str


@dataclass(frozen=True, slots=True)
class NotCompared:
    """An optimizer's gradients or parameters that could not be compared at any step."""

    optimizer: str
    role: str
    unread: tuple[int, ...]  # ranks without figures at any step; empty: each rank has a shard


@dataclass(frozen=True, slots=True)
class SameInputs:
    """A line at which all members reduce equal values, step after step: equal data made them."""

    group: Identifier
    kind: str
    site: wire.Site | None
    ops: int
    steps: tuple[int, int]  # the first and the last one


@dataclass(frozen=True, slots=True)
class BadNumbers:
    """The first sample with NaN or Inf of an input, a message or a gradient, per rank."""

    rank: int
    sample: RankSample
    what: str  # "NaN" or "Inf"
    others_clean: tuple[int, ...]  # members whose sample of the same op or message has none
    left_out: bool = False  # a loss scaler found it and skipped that step
    undecided: bool = False  # it has not said so yet
    earliest: bool = False  # its group had no earlier sample
    cast: CastEvidence | None = None  # of an Inf
    received: int = 0  # before it sent this one: messages of that step, all without any


@dataclass(frozen=True, slots=True)
class Findings:
    """What the samples of all ranks show."""

    ops: tuple[OpDifference, ...] = ()
    steps: tuple[StepDifference, ...] = ()
    bad: tuple[BadNumbers, ...] = ()
    equal_ops: Mapping[Identifier, int] = field(
        default_factory=dict
    )  # compared and equal, by group
    equal_steps: Mapping[str, int] = field(default_factory=dict)  # compared and equal, by role
    incomplete: int = 0  # ops that only some members have sampled
    unclear: int = 0  # ops that differ every time, and may have been changed by the program since
    unlike: tuple[str, ...] = ()  # roles in which no majority of replicas was seen
    not_compared: tuple[NotCompared, ...] = ()
    dtypes: tuple[DtypeDifference, ...] = ()
    same: tuple[SameInputs, ...] = ()
    scales: tuple[ScaleHistory, ...] = ()
    figures: tuple[GroupFigures, ...] = ()
    modules: bool = True  # whether any rank with samples of ops records modules
    asked: int = 0  # how many ranks sample
    messages: tuple[MessageDifference, ...] = ()
    equal_messages: Mapping[Identifier, int] = field(default_factory=dict)
    unclear_messages: int = 0  # they differ, but nothing shows that both sides count alike
    one_sided: int = 0  # messages of which only one side was sampled

    @property
    def named(self) -> tuple[int, ...]:
        """The ranks that differ, or have NaN or Inf."""
        odd = [
            *(op.odd for op in self.ops),
            *(one.named for one in self.messages),
            *(step.odd for step in self.steps),
            *(dtype.odd for dtype in self.dtypes),
            *(scale.difference.odd for scale in self.scales if scale.difference is not None),
        ]
        return tuple(sorted({one.rank for one in self.bad if not one.left_out}.union(*odd)))

    @property
    def any_fault(self) -> bool:
        """Whether ranks differ, or one has a NaN or Inf that no loss scaler has handled."""
        return self.decided_fault or any(one.undecided for one in self.bad)

    @property
    def decided_fault(self) -> bool:
        """The same, without what a loss scaler may still handle."""
        return bool(
            self.ops
            or self.messages
            or self.steps
            or self.dtypes
            or self.same
            or any(one.difference for one in self.scales)
            or any(not (one.left_out or one.undecided) for one in self.bad)
        )


class _Table(defaultdict[Any, defaultdict[int, list[RankSample]]]):
    """Samples by subject, and by number or step."""

    def __init__(self) -> None:
        super().__init__(lambda: defaultdict(list))


def findings(samples: Iterable[RankSample], asked: int) -> Findings:
    """Compares the samples of all ranks; `asked` ranks sample, and a step needs all of them."""
    outputs, inputs, steps = _Table(), _Table(), _Table()
    messages: defaultdict[Identifier, list[RankSample]] = defaultdict(list)
    samples, updates = list(samples), []
    for one in samples:
        role = one.sample.role
        if role in ("gradient", "parameter"):
            steps[one.sample.taken, role][one.sample.step].append(one)
        elif role in ("loss_scale", "found_inf"):
            updates.append(one)
        elif one.group is not None and role in ("input", "output"):
            table = outputs if role == "output" else inputs
            table[one.group][one.sample.number].append(one)
        elif one.group is not None and role in OF_MESSAGES:
            messages[one.group].append(one)
    ops = {group: _compare_ops(group, by_number) for group, by_number in outputs.items()}
    by_gradients = {
        optimizer
        for (optimizer, role), by_step in steps.items()
        if role == "gradient"
        and _compare_steps(optimizer, role, by_step, asked).equal
        and all(any(map(_has_values, ones)) for ones in by_step.values())
    }
    replicas = [
        (key, _compare_steps(key[0], key[1], by_step, asked, replicas=key[0] in by_gradients))
        for key, by_step in steps.items()
    ]
    not_compared = [_not_compared(key[0], key[1], by_step) for key, by_step in steps.items()]
    left_out = {(one.optimizer, one.role) for one in not_compared if one is not None}
    different = [one for _, (one, _, _) in replicas if one is not None]
    scales = scale_histories(updates)
    dtypes = [
        *(op_dtypes(group, by) for table in (inputs, outputs) for group, by in table.items()),
        *(step_dtypes(key[0], key[1], by_step, asked) for key, by_step in steps.items()),
    ]
    equal: Counter[str] = Counter()
    for (_, role), (_, same, _) in replicas:
        equal[role] += same
    first = [one.first for one in ops.values() if one.first is not None]
    compared = compare_messages(one for ones in messages.values() for one in ones)
    return Findings(
        tuple(sorted(first, key=lambda one: (one.step, one.at_ns))),
        tuple(sorted(different, key=lambda one: (one.step, one.role))),
        _explained(_bad_numbers(inputs, messages, steps, scales), samples),
        {group: one.equal for group, one in ops.items() if one.equal},
        {role: count for role, count in equal.items() if count},
        sum(one.partly for one in ops.values()),
        sum(one.unclear for one in ops.values()),
        tuple(
            dict.fromkeys(
                key[1] for key, (_, _, alike) in replicas if not alike and key not in left_out
            )
        ),
        tuple(one for one in not_compared if one is not None),
        tuple(one for one in dtypes if one is not None),
        tuple(one for group, by in inputs.items() for one in _same_inputs(group, by)),
        scales,
        figures_by_group(samples),
        any(one.issuer is not None for one in samples),
        asked,
        compared.differences,
        compared.equal,
        compared.unclear,
        compared.one_sided,
    )


def _explained(bad: Sequence[BadNumbers], samples: Sequence[RankSample]) -> tuple[BadNumbers, ...]:
    """Adds where an Inf may come from."""
    with_inf = {one.rank for one in bad if one.what == "Inf"}
    of_rank: defaultdict[int, list[RankSample]] = defaultdict(list)
    for one in samples if with_inf else ():
        if one.rank in with_inf:
            of_rank[one.rank].append(one)
    return tuple(
        replace(one, cast=cast_evidence(one.sample, of_rank[one.rank]))
        if one.what == "Inf" else one
        for one in bad
    )  # fmt: skip


@dataclass(slots=True)
class _Ops:
    """The ops of one group, as they are compared number by number."""

    group: Identifier
    first: OpDifference | None = None
    equal: int = 0
    differing: int = 0
    partly: int = 0
    unclear: int = 0
    before: tuple[int, int] = (0, 0)
    steady: set[tuple[object, ...]] = field(default_factory=set)
    """Ops, by kind and line, with an earlier one that was equal on all members."""

    def add(self, number: int, ones: Sequence[RankSample]) -> None:
        """Compares one op between the ranks that have sampled it."""
        everybody = len(members(self.group))
        if len(ones) < 2 or len({_read(one) for one in ones}) > 1:
            self.partly += 1
            return
        self.partly += len(ones) < everybody
        sides = sides_of((one.rank, one.sample.checksum) for one in ones)
        one, alike = ones[0], (*_read(ones[0]), ones[0].site)
        if len(sides) == 1:
            self.equal += 1
            if len(ones) == everybody:
                self.steady.add(alike)
                if self.first is None:
                    self.before = number, one.sample.step
            return
        changed = any(each.sample.taken != "wait" for each in ones)
        # What a program changes itself differs every time, and that is no fault.
        if changed and alike not in self.steady:
            self.unclear += 1
            return
        self.differing += 1
        if self.first is None:
            self.first = OpDifference(
                self.group, number, one.sample.kind, one.sample.step, one.site, sides,
                odd_ranks(sides), *self.before, changed, 0, 0, one.issuer, one.at_ns,
            )  # fmt: skip


def _compare_ops(group: Identifier, by_number: Mapping[int, Sequence[RankSample]]) -> _Ops:
    """Compares the results of a group's ops that must be equal."""
    found = _Ops(group)
    for number in sorted(by_number):
        ones = [one for one in by_number[number] if one.sample.checksum and not one.sample.error]
        if ones and ones[0].sample.kind in EQUAL_AFTER:
            found.add(number, ones)
    if found.first is not None:
        compared = found.differing + found.equal
        found.first = replace(found.first, differing=found.differing, compared=compared)
    return found


def _read(one: RankSample) -> tuple[object, ...]:
    """What must be equal for checksums to be comparable."""
    return one.sample.kind, one.sample.dtype, one.sample.elements, one.sample.seen


REDUCED: Final = frozenset({"all_reduce", "reduce_scatter_tensor"})
"""Ops that make one tensor of those of all members: if all have it already, they add nothing."""
FEWEST_VALUES: Final = 256
"""Counts, losses and norms may be equal on all ranks; a gradient of so many values never is."""
FEWEST_STEPS: Final = 3


def _same_inputs(
    group: Identifier, by_number: Mapping[int, Sequence[RankSample]]
) -> Iterator[SameInputs]:
    """Lines whose ops had equal inputs on all members, whenever these were sampled."""
    everybody = len(members(group))
    lines: dict[tuple[str, wire.Site | None], list[tuple[int, bool]]] = defaultdict(list)
    for ones in by_number.values():
        one = ones[0]
        if one.sample.kind in REDUCED and len(ones) == everybody > 1 and all(map(_varies, ones)):
            equal = len({(one.sample.checksum, _read(one)) for one in ones}) == 1
            lines[one.sample.kind, one.site].append((one.sample.step, equal))
    for (kind, site), found in lines.items():
        steps = {step for step, _ in found}
        if len(steps) >= FEWEST_STEPS and all(equal for _, equal in found):
            yield SameInputs(group, kind, site, len(found), (min(steps), max(steps)))


def _varies(one: RankSample) -> bool:
    """Whether a sample has many values that differ from each other."""
    sample = one.sample
    read = bool(sample.checksum) and not sample.error and sample.elements >= FEWEST_VALUES
    return read and sample.minimum != sample.maximum


def _has_values(one: RankSample) -> bool:
    """Whether it is more than zeros and NaN, which are equal on ranks that are no replicas, too."""
    sample = one.sample
    return sample.zeros + sample.nans + sample.infinities < sample.elements


class _Steps(NamedTuple):
    """The first difference, how many steps are equal, and whether ranks look like replicas."""

    different: StepDifference | None
    equal: int
    alike: bool


def _compare_steps(
    optimizer: str,
    role: str,
    by_step: Mapping[int, Sequence[RankSample]],
    asked: int,
    *,
    replicas: bool = False,
) -> _Steps:
    """Compares an optimizer's gradients or parameters.

    `replicas`: its gradients are equal, so two sides of equal size are replicas that differ.
    """
    equal, before, alike = 0, -1, replicas
    for step in sorted(by_step):
        by_rank: defaultdict[int, dict[int, RankSample]] = defaultdict(dict)
        for one in by_step[step]:
            if one.sample.checksum and not one.sample.error:
                by_rank[one.rank][one.sample.number] = one
        # All of them: in a mesh, the holders of one shard may answer first and be a majority.
        if len(by_rank) < max(2, asked):
            continue
        layouts = sides_of((rank, str(_layout(of_rank))) for rank, of_rank in by_rank.items())
        if len(layouts) > 1:
            continue  # other parameters, as in stages of a pipeline
        joint = sides_of((rank, _sums(of_rank)) for rank, of_rank in by_rank.items())
        if len(joint) == 1:
            equal, before, alike = equal + 1, step, True
            continue
        odd = odd_ranks(joint)
        model = by_rank[joint[0].ranks[0]]
        if not any(map(_has_values, model.values())) or (not odd and not alike):
            continue
        different = _step_difference(optimizer, role, step, by_rank, odd, before)
        return _Steps(different, equal, True)
    return _Steps(None, equal, alike)


def _not_compared(
    optimizer: str, role: str, by_step: Mapping[int, Sequence[RankSample]]
) -> NotCompared | None:
    """Why no step could be compared; None if all ranks have figures and not just shards."""
    samples = [one for ones in by_step.values() for one in ones]
    readable = {one.rank for one in samples if one.sample.checksum and not one.sample.error}
    if not readable and all(one.sample.shard for one in samples):
        return NotCompared(optimizer, role, ())
    unread = sorted({one.rank for one in samples} - readable)
    return NotCompared(optimizer, role, tuple(unread)) if unread else None


def _step_difference(  # noqa: PLR0917 - the locals of the loop above
    optimizer: str,
    role: str,
    step: int,
    by_rank: Mapping[int, Mapping[int, RankSample]],
    odd: tuple[int, ...],
    before: int,
) -> StepDifference:
    places = sorted(next(iter(by_rank.values())))
    names: list[str] = []
    first: tuple[RankSide, ...] = ()
    for place in places:
        ones = [of_rank[place] for of_rank in by_rank.values()]
        sides = sides_of((one.rank, one.sample.checksum) for one in ones)
        if len(sides) > 1:
            first, one = first or sides, ones[0].sample
            names.append(f"{ones[0].name} ({one.dtype}, {one.elements:,} values)")
    return StepDifference(role, step, odd, first, tuple(names), len(places), before, optimizer)


def _layout(of_rank: Mapping[int, RankSample]) -> tuple[tuple[object, ...], ...]:
    return tuple((place, *_read(of_rank[place])) for place in sorted(of_rank))


def _sums(of_rank: Mapping[int, RankSample]) -> str:
    return " ".join(of_rank[place].sample.checksum for place in sorted(of_rank))


def _bad_numbers(
    inputs: Mapping[Identifier, Mapping[int, Sequence[RankSample]]],
    messages: Mapping[Identifier, Sequence[RankSample]],
    steps: Mapping[tuple[str, str], Mapping[int, Sequence[RankSample]]],
    scales: Sequence[ScaleHistory],
) -> tuple[BadNumbers, ...]:
    """By group, the ranks whose input was the first with NaN or Inf; gradients if no op had any.

    Of messages it is the rank that sent the first one.

    The group that had it first comes first.
    """
    found = [one for by in inputs.values() if (one := _first_bad(by, scales))]
    found += [one for by in messages.values() if (one := _bad_message(by, scales))]
    if not found:
        gradients = (by_step for (_, role), by_step in steps.items() if role == "gradient")
        found = [one for by in gradients if (one := _first_bad(by, scales))]
    found.sort(key=lambda ones: min((one.sample.sample.step, one.sample.at_ns) for one in ones))
    return tuple(one for ones in found for one in ones)


def _first_bad(
    by_number: Mapping[int, Sequence[RankSample]], scales: Sequence[ScaleHistory]
) -> Sequence[BadNumbers]:
    """The first ones in a step that no loss scaler has skipped; else the very first."""
    first: Sequence[BadNumbers] = ()
    begin = min(by_number, default=0)
    for number in sorted(by_number):
        bad = _bad(by_number[number], scales, earliest=number == begin)
        if not all(one.left_out for one in bad):
            return bad
        first = first or bad
    return first


def _bad(
    ones: Sequence[RankSample], scales: Sequence[ScaleHistory], *, earliest: bool
) -> Sequence[BadNumbers]:
    bad: dict[int, RankSample] = {}
    for one in ones:
        if (one.sample.nans or one.sample.infinities) and one.rank not in bad:
            bad[one.rank] = one
    clean = tuple(sorted({one.rank for one in ones if not one.sample.error} - set(bad)))
    return [_named(one, clean, scales, earliest=earliest) for _, one in sorted(bad.items())]


def _bad_message(
    samples: Sequence[RankSample], scales: Sequence[ScaleHistory]
) -> Sequence[BadNumbers]:
    bad = first_bad_message(samples, lambda one: _is_left_out(one, scales))
    if bad is None:
        return ()
    named = _named(bad.one, bad.clean, scales, earliest=bad.earliest)
    return (replace(named, received=bad.received),)


def _named(
    one: RankSample,
    clean: tuple[int, ...],
    scales: Sequence[ScaleHistory],
    *,
    earliest: bool,
) -> BadNumbers:
    rank, step = one.rank, one.sample.step
    return BadNumbers(
        rank, one, "NaN" if one.sample.nans else "Inf", clean, _is_left_out(one, scales),
        any(scale.newest.get(rank, step) < step for scale in scales), earliest,
    )  # fmt: skip


def _is_left_out(one: RankSample, scales: Sequence[ScaleHistory]) -> bool:
    """Whether a loss scaler has skipped the step."""
    return any((one.rank, one.sample.step) in scale.left_out for scale in scales)
