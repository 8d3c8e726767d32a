"""Writes a plan of what a good run does. Pure.

A figure that is the same in all steps is one number. What varies is a range, and what has no bounds
is a comment, so that a later check of the same job does not break by chance.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from frtop_tui.features.check.facts import NO_OPS, JobFacts, OpSums
from frtop_tui.features.check.plan import dotted, quoted
from frtop_tui.job.environment import is_own
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import folded, job_title, listed, printable
from frtop_tui.job.units import counted, local_time

STEADY: Final = 0.75
"""A rank has the same figure in this share of its steps, or the figure varies."""
LEEWAY: Final = 2.0
"""Steps may be so many times as long as the longest one, or as short as the shortest one."""
OF_FRTOP: Final = "frtop "
"""Settings that say how the job is recorded."""
_COMMENT_AT: Final = 40
_DIGITS: Final = 10_000
"""Numbers from here on are written in groups of three digits."""


def plan_text(facts: JobFacts, wall_ns: int) -> str:
    """The plan as TOML."""
    steps = [step for several in facts.steps.values() for step in several]
    job = printable(job_title(facts.job)) if facts.job is not None else "a job"
    what = f"{counted(facts.world, 'rank')}" if facts.world else "no rank has joined yet"
    if steps:
        numbers = [step.number for step in steps]
        what += f", steps {min(numbers):,} to {max(numbers):,}"
    rows = [
        f"# What {job} does, as seen on {local_time(wall_ns)}: {what}.",
        "# `frtop check FILE` compares a job with it. A line that you delete is not checked.",
        "# A figure that may vary is a range: [least, most].",
        "",
        *_job(facts),
        *_settings(facts),
        *_groups(facts),
        *_steps(facts),
        *_ops(facts),
    ]
    return "\n".join(rows).rstrip("\n") + "\n"


def left_out(facts: JobFacts) -> str:
    """Why a plan has no steps and no ops; "" if it has."""
    if facts.steps and not facts.unknown:
        return ""
    reasons: defaultdict[str, list[int]] = defaultdict(list)
    for rank, why in facts.unknown.items():
        reasons[why].append(rank)
    texts = [f"{why} ({folded(ranks)})" for why, ranks in reasons.items()]
    return listed(texts, 2, "; ") or "no rank is known"


def _job(facts: JobFacts) -> Iterator[str]:
    if facts.world:
        yield from ("[job]", _line("world-size", str(facts.world), "ranks"), "")


def _settings(facts: JobFacts) -> Iterator[str]:
    """Versions and variables that all ranks share. Paths differ from run to run."""
    common = {
        name: value
        for name, value in facts.settings.common.items()
        if not (is_own(name) or name.startswith(OF_FRTOP))
    }
    paths = [name for name, value in common.items() if "/" in value]
    different = [name for name in facts.settings.different if not is_own(name)]
    if not common:
        return
    yield "[settings]  # versions and variables of every rank"
    yield '# "not set" is a value, too.'
    for name, value in common.items():
        if name not in paths:
            yield f"{dotted((printable(name),))} = {quoted(printable(value))}"
    if paths:
        yield f"# left out, as they have paths: {', '.join(map(printable, paths))}"
    if different:
        yield f"# left out, as ranks differ: {', '.join(map(printable, different))}"
    yield ""


def _groups(facts: JobFacts) -> Iterator[str]:
    for name, groups in facts.groups.items():
        sizes = [len(group.members) for group in groups]
        backends = {printable(group.backend) for group in groups}
        yield f"[{dotted(('groups', name))}]  # {_members(groups)}"
        yield _line("groups", _figure(len(groups), len(groups)), "groups of this description")
        yield _line("ranks", _figure(min(sizes), max(sizes)), "in each of them")
        if len(backends) == 1 and "" not in backends:
            yield _line("backend", quoted(backends.pop()))
        yield ""


def _members(groups: Sequence[GroupView]) -> str:
    return listed([printable(group.key.ranks)[:40] for group in groups], 4, "; ")


def _steps(facts: JobFacts) -> Iterator[str]:
    if why := left_out(facts):
        yield f"# No steps and no ops: {why}."
        return
    took = [step.took_ns / 1e9 for steps in facts.steps.values() for step in steps]
    seen = f"{min(took):.3g} to {max(took):.3g} s, median {median(took):.3g} s"
    yield "[step]"
    yield f"# {counted(len(took), 'step')} took {seen}. Half and twice as much are held."
    yield _line("seconds", f"[{min(took) / LEEWAY:.3g}, {max(took) * LEEWAY:.3g}]")
    yield _line("other-ops", "false", "most steps have no ops but those with a table below")
    yield ""


class _Kind(NamedTuple):
    """The ops of one kind in one set of groups: those of each step, by rank."""

    name: str
    kind: str
    steps: Mapping[int, Sequence[OpSums]]


def _ops(facts: JobFacts) -> Iterator[str]:
    if left_out(facts):
        return
    where = sorted({key for steps in facts.steps.values() for step in steps for key in step.ops})
    if where:
        yield "# Ops of each rank in each step: how many, and their bytes together."
    for name, kind in where:
        ranks = facts.members.get(name, frozenset(facts.steps)) & facts.steps.keys()
        one = _Kind(name, kind, {
            rank: [step.ops.get((name, kind), NO_OPS) for step in facts.steps[rank]]
            for rank in sorted(ranks)
        })  # fmt: skip
        yield from _kind(one)


def _kind(one: _Kind) -> Iterator[str]:
    table = dotted(("ops", one.name, one.kind))
    counts = _seen({rank: [step.ops for step in steps] for rank, steps in one.steps.items()})
    if not counts.most:
        seen = sum(step.ops > 0 for steps in one.steps.values() for step in steps)
        yield f"# [{table}] is left out: only {counted(seen, 'step')} of all ranks had one."
        yield ""
        return
    yield f"[{table}]"
    yield _line("count", _figure(counts.least, counts.most), counts.note)
    sizes = [[step.bytes for step in steps] for steps in one.steps.values()]
    if any(size is None for several in sizes for size in several):
        yield "# bytes: not all sizes are recorded"
    else:
        size = _seen({
            rank: [step.bytes or 0 for step in steps] for rank, steps in one.steps.items()
        })  # fmt: skip
        line = _line("bytes", _figure(size.least, size.most), size.note)
        if size.varies:
            yield f"# {line}: not checked"
        elif size.most:
            yield line
    dtypes = Counter(step.dtypes for steps in one.steps.values() for step in steps if step.ops)
    usual, count = dtypes.most_common(1)[0]
    if usual and count >= STEADY * sum(dtypes.values()):
        yield _line("dtypes", f"[{', '.join(map(quoted, sorted(usual)))}]")
    elif usual:
        yield "# dtypes: they differ between steps or ranks"
    yield ""


class _Seen(NamedTuple):
    """Between which values a figure was; `varies` from step to step, so that it may leave them."""

    least: int
    most: int
    note: str = ""
    varies: bool = False


def _seen(values: Mapping[int, Sequence[int]]) -> _Seen:
    """The figure of most steps of each rank; where ranks have no such figure, all that was seen."""
    usual: dict[int, int] = {}
    steady, others, steps = True, 0, 0
    for rank, several in values.items():
        usual[rank], times = Counter(several).most_common(1)[0]
        steady = steady and times >= STEADY * len(several)
        others += len(several) - times
        steps += len(several)
    if not steady:
        every = [value for several in values.values() for value in several]
        return _Seen(min(every), max(every), "varies from step to step", varies=True)
    least, most = min(usual.values()), max(usual.values())
    notes = ["differs between ranks"] if least < most else []
    notes += [f"another figure in {others:,} of {steps:,} steps"] if others else []
    return _Seen(least, most, ", ".join(notes))


def _figure(least: int, most: int) -> str:
    texts = [f"{one:_}" if one >= _DIGITS else str(one) for one in (least, most)]
    return texts[0] if least == most else f"[{', '.join(texts)}]"


def _line(key: str, value: str, comment: str = "") -> str:
    line = f"{key} = {value}"
    return f"{line:<{_COMMENT_AT}}  # {comment}" if comment else line
