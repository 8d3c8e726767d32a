"""Compares a plan with the facts of a job. Pure.

What is not known is never held. What steps have is decided rank by rank, by most of its steps: a
log, an evaluation or a checkpoint now and then breaks no expectation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import comb
from statistics import median
from typing import Any, Final, Literal, NamedTuple, TypeVar

from frtop_tui.features.check.facts import (
    NO_OPS,
    NO_RECORDER,
    NO_STEP,
    UNREPORTED,
    CompleteStep,
    JobFacts,
)
from frtop_tui.features.check.plan import Expectation, Expected, Figures, JobPlan
from frtop_tui.job.environment import UNSET, VERSIONS, excerpts
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import folded, listed, printable, shortened

Held = Literal["held", "broken", "not known"]
CHANCE: Final = 0.01
"""The time of a step breaks an expectation only if chance explains it less often than this."""
MOST_VALUES: Final = 3
"""How many different values, with their ranks, are named."""
NOTHING: Final = "no such op"
Value = TypeVar("Value", bound=Hashable)


class Outcome(NamedTuple):
    """What became of one expectation: what was found, or why that is not known, and which ranks."""

    expectation: Expectation
    result: Held
    found: str = ""
    why: str = ""
    ranks: tuple[int, ...] = ()


def compared(plan: JobPlan, facts: JobFacts) -> tuple[Outcome, ...]:
    """One outcome for each expectation, in their order."""
    return tuple(_ROOMS[one.path[0]](one, plan, facts) for one in plan.expectations)


def overall(outcomes: Iterable[Outcome]) -> Held:
    """Broken if one is; not known if one is."""
    results = {one.result for one in outcomes}
    return "broken" if "broken" in results else "not known" if "not known" in results else "held"


def words_of(key: str, value: Expected) -> str:
    """An expected or a found value; `key` is the last part of the key."""
    if isinstance(value, Figures):
        if value.least != value.most:
            least, most = (words_of(key, Figures(one, one)) for one in value)
            return f"{least.removesuffix(' bytes').removesuffix(' s')} to {most}"
        if key == "seconds":
            return f"{value.least:.3g} s"
        return f"{value.least:,.10g}{' bytes' if key == 'bytes' else ''}"
    if isinstance(value, bool):
        return "others may be there" if value else "none"
    return value if isinstance(value, str) else ", ".join(sorted(value)) or NOTHING


def _one(key: str, value: float) -> str:
    return words_of(key, Figures(value, value))


def _job(one: Expectation, _: JobPlan, facts: JobFacts) -> Outcome:
    assert isinstance(one.value, Figures)
    if not facts.world:
        return Outcome(one, "not known", why="no rank has joined a process group yet")
    held = one.value.has(facts.world)
    return Outcome(one, "held" if held else "broken", _one("", facts.world))


def _setting(one: Expectation, _: JobPlan, facts: JobFacts) -> Outcome:
    name = one.path[1]
    unread = dict.fromkeys(facts.settings.unknown, NO_RECORDER)
    unread |= dict.fromkeys(facts.silent, UNREPORTED)
    read = [rank for rank in facts.ranks if rank not in unread]
    values: dict[str, Sequence[int]] = dict(facts.settings.members.get(name, {}))
    if not values and read:
        values = {facts.settings.common.get(name, UNSET): read}
    if name in VERSIONS and UNSET in values:
        unread |= dict.fromkeys(values.pop(UNSET), UNREPORTED)
    wrong = {value: ranks for value, ranks in values.items() if printable(value) != one.value}
    if wrong:
        several = zip(excerpts(list(wrong)), wrong.values(), strict=True)
        found = [f"{printable(value)} on {folded(ranks)}" for value, ranks in several]
        ranks = tuple(sorted(rank for some in wrong.values() for rank in some))
        return Outcome(one, "broken", listed(found, MOST_VALUES), ranks=ranks)
    if unread or not values:
        return _unknown(one, unread or facts.unknown)
    return Outcome(one, "held", words_of(name, one.value))


def _group(one: Expectation, _: JobPlan, facts: JobFacts) -> Outcome:
    _room, name, key = one.path
    groups = facts.groups.get(name, ())
    if not groups:
        return _no_group(one, facts)
    if key == "groups":
        assert isinstance(one.value, Figures)
        return _how_many(one, one.value, len(groups), facts)
    if key == "ranks":
        assert isinstance(one.value, Figures)
        wanted = one.value
        return _of_groups(one, groups, lambda group: len(group.members), wanted.has, facts)
    return _of_groups(one, groups, lambda group: printable(group.backend),
                      lambda backend: backend == one.value, facts)  # fmt: skip


def _no_group(one: Expectation, facts: JobFacts) -> Outcome:
    """No group has this name: a job that has just begun may not have made it yet."""
    if facts.unknown or not facts.steps:
        return _unknown(one, facts.unknown)
    there = f"; there is {listed(list(facts.groups))}" if one.path[0] == "groups" else ""
    return Outcome(one, "broken", f"no group of this name{there}")


def _how_many(one: Expectation, wanted: Figures, groups: int, facts: JobFacts) -> Outcome:
    if groups > wanted.most:
        return Outcome(one, "broken", _one("", groups))
    if facts.silent or (groups < wanted.least and (facts.unknown or not facts.steps)):
        return _unknown(one, facts.unknown)
    return Outcome(one, "broken" if groups < wanted.least else "held", _one("", groups))


def _of_groups(
    one: Expectation,
    groups: Sequence[GroupView],
    value: Callable[[GroupView], Value],
    fits: Callable[[Value], bool],
    facts: JobFacts,
) -> Outcome:
    """What each group of a set has; ranks that are silent may have other groups of that name."""
    found: defaultdict[Value, list[GroupView]] = defaultdict(list)
    for group in groups:
        found[value(group)].append(group)
    wrong = {what: several for what, several in found.items() if not fits(what)}
    if wrong:
        named = [f"{what} ({_named(several)})" for what, several in wrong.items()]
        ranks = {rank for several in wrong.values() for group in several for rank in group.members}
        return Outcome(one, "broken", listed(named, MOST_VALUES), ranks=tuple(sorted(ranks)))
    if facts.silent:
        return _unknown(one, dict.fromkeys(facts.silent, UNREPORTED))
    return Outcome(one, "held", listed([str(what) for what in found], MOST_VALUES))


def _named(groups: Sequence[GroupView]) -> str:
    """`groups 0,2; 1,3`: their ranks."""
    ranks = listed([shortened(printable(one.key.ranks), 40) for one in groups], MOST_VALUES, "; ")
    return f"group{'s' * (len(groups) > 1)} {ranks}"


def _step(one: Expectation, plan: JobPlan, facts: JobFacts) -> Outcome:
    if one.path[1] == "other-ops":
        return _other_ops(one, plan, facts)
    assert isinstance(one.value, Figures)
    wanted = one.value
    took = _OfStep(
        lambda step: step.took_ns,
        lambda ns: wanted.has(ns / 1e9),
        lambda values: _one("seconds", median(values) / 1e9),
        sure=True,
    )
    return _by_rank(one, facts, facts.ranks, took)


def _other_ops(one: Expectation, plan: JobPlan, facts: JobFacts) -> Outcome:
    """Ops that have no table in the plan, and that most steps of a rank have."""
    if one.value is True:
        return Outcome(one, "held", "not checked")
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, steps in facts.steps.items():
        seen = Counter(where for step in steps for where in step.ops)
        for where, count in seen.items():
            if where not in plan.ops and 2 * count > len(steps):
                found[where].append(rank)
    if found:
        words = [
            f"{kind} in {name} on {folded(ranks)}" for (name, kind), ranks in sorted(found.items())
        ]
        ranks = {rank for some in found.values() for rank in some}
        return Outcome(one, "broken", listed(words, MOST_VALUES), ranks=tuple(sorted(ranks)))
    if facts.unknown or not facts.steps:
        return _unknown(one, facts.unknown)
    return Outcome(one, "held", "none")


def _ops(one: Expectation, _: JobPlan, facts: JobFacts) -> Outcome:
    _room, name, kind, key = one.path
    members = facts.members.get(name)
    if members is None:
        return _no_group(one, facts)
    wanted, where = one.value, (name, kind)
    if isinstance(wanted, Figures):
        field = "ops" if key == "count" else key
        figure = _OfStep(
            lambda step: getattr(step.ops.get(where, NO_OPS), field),
            wanted.has,
            lambda values: _one(key, _usual(values)),
        )
        return _by_rank(one, facts, members, figure)
    if not any(where in step.ops for rank in members for step in facts.steps.get(rank, ())):
        unseen = {rank: facts.unknown[rank] for rank in members if rank in facts.unknown}
        if unseen or not facts.steps:
            return _unknown(one, unseen)
        return Outcome(one, "broken", NOTHING, ranks=tuple(sorted(members)))
    dtypes = _OfStep(
        lambda step: step.ops[where].dtypes if where in step.ops else None,
        lambda found: found == wanted,
        lambda values: words_of(key, _usual(values)),
        may_lack=True,
    )
    return _by_rank(one, facts, members, dtypes)


class _OfStep(NamedTuple):
    """A figure of a step.

    `value` is None where it is not known, `fits` is whether it is as expected, `words` is what the
    values of several steps are together. If `sure`, chance must not explain steps that do not fit.
    If it `may_lack`, steps without a value do not count.
    """

    value: Callable[[CompleteStep[str]], Any]
    fits: Callable[[Any], bool]
    words: Callable[[Sequence[Any]], str]
    sure: bool = False
    may_lack: bool = False


def _by_rank(one: Expectation, facts: JobFacts, ranks: Iterable[int], figure: _OfStep) -> Outcome:
    """Decides by most steps of each of these ranks."""
    broken: defaultdict[str, list[int]] = defaultdict(list)
    held: list[Any] = []
    unknown: dict[int, str] = {}
    for rank in sorted(ranks):
        if rank not in facts.steps:
            unknown[rank] = facts.unknown.get(rank, UNREPORTED)
            continue
        several = [figure.value(step) for step in facts.steps[rank]]
        values = [each for each in several if each is not None]
        if len(values) < len(several) and not figure.may_lack:
            unknown[rank] = "not all sizes are recorded"
            continue
        if not values:
            continue
        fitting = sum(map(figure.fits, values))
        if 2 * fitting > len(values):
            held += values
        elif 2 * fitting < len(values) and not (figure.sure and _chance(fitting, len(values))):
            broken[figure.words(values)].append(rank)
        else:
            so_far = f"{figure.words(values)} so far, " if figure.sure else ""
            unknown[rank] = f"{so_far}as expected in {fitting} of {len(values)} steps"
    if broken:
        named = [f"{found} on {folded(some)}" for found, some in sorted(broken.items())]
        wrong = tuple(sorted(rank for some in broken.values() for rank in some))
        return Outcome(one, "broken", listed(named, MOST_VALUES), ranks=wrong)
    if unknown or not held:
        return _unknown(one, unknown)
    return Outcome(one, "held", figure.words(held))


def _usual(values: Sequence[Value]) -> Value:
    """The most frequent value, of equally frequent ones the newest."""
    return Counter(reversed(values)).most_common(1)[0][0]


def _chance(fitting: int, steps: int) -> bool:
    """Whether so few steps may fit by chance, though every other one does."""
    fewer: float = sum(comb(steps, n) for n in range(fitting + 1)) * 0.5**steps
    return fewer > CHANCE


def _unknown(one: Expectation, why: Mapping[int, str]) -> Outcome:
    """Not known, and why, for the most ranks first."""
    by_reason: defaultdict[str, list[int]] = defaultdict(list)
    for rank, reason in why.items():
        by_reason[reason].append(rank)
    ordered = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    text = listed([f"{reason} ({folded(ranks)})" for reason, ranks in ordered], 2, "; ")
    return Outcome(one, "not known", why=text or NO_STEP, ranks=tuple(sorted(why)))


_ROOMS: Final[Mapping[str, Callable[[Expectation, JobPlan, JobFacts], Outcome]]] = {
    "job": _job, "settings": _setting, "groups": _group, "step": _step, "ops": _ops,
}  # fmt: skip
