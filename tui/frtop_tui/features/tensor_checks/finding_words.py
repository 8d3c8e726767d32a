"""What samples of numbers say, in sentences: for screens and the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final

from frtop_probe import wire
from frtop_tui.features.tensor_checks.comparison import (
    BadNumbers,
    Findings,
    OpDifference,
    StepDifference,
)
from frtop_tui.features.tensor_checks.dtypes import DtypeDifference
from frtop_tui.features.tensor_checks.figure_words import scale_words
from frtop_tui.features.tensor_checks.precision import REACHES, largest
from frtop_tui.features.tensor_checks.samples import GroupNames
from frtop_tui.job.issuer_words import brief_issuer
from frtop_tui.job.naming import folded, listed
from frtop_tui.job.rank_sides import RankSide
from frtop_tui.text.plain import WordLine

MOST_BAD: Final = 8
MOST_PLACES: Final = 4
NO_MODULES: Final = (
    "which module issued an op is not recorded; from now on by `frtop record --modules on`, or `o`"
    " on the screen `:record`"
)


def finding_words(
    found: Findings,
    names: GroupNames,
    site: Callable[[wire.Site | None], str],
    places: Mapping[int, str] = MappingProxyType({}),
) -> Iterator[WordLine]:
    """What differs first, then where a NaN was, then what was compared and is equal.

    Args:
        found: of all samples.
        names: of groups.
        site: writes a line of the program.
        places: PID and host of ranks that are named.
    """
    for op in found.ops:
        yield from _op(op, names, site)
    for step in found.steps:
        yield from _step(step)
    for dtype in found.dtypes:
        yield from _dtype(dtype, names)
    alike = [list(ones) for _, ones in groupby(found.bad, _alike)]
    for bad in alike[:MOST_BAD]:
        yield _bad(bad, names, site)
        yield from _overflow(next((one for one in bad if one.cast is not None), bad[0]))
    if more := sum(map(len, alike[MOST_BAD:])):
        yield WordLine("", f"and {more:,} more ranks with NaN or Inf", "bad")
    if named := [rank for rank in found.named if rank in places]:
        text = "; ".join(f"rank {rank} is {places[rank]}" for rank in named[:MOST_PLACES])
        more = len(named) - MOST_PLACES
        yield WordLine("where", text + (f"; and {more:,} more" if more > 0 else ""), "dim")
    if after := next_step(found):
        yield WordLine("next", after, "strong")
    for scale in found.scales:
        yield from scale_words(scale)
    yield from _rest(found, names)


def _rest(found: Findings, names: GroupNames) -> Iterator[WordLine]:
    """What was compared and is equal, and what was not compared."""
    for group, count in found.equal_ops.items():
        text = f"the results of {count:,} ops were equal bit by bit on all who were compared"
        yield WordLine(names.label(group), text, "good" if not found.ops else "dim")
    for role, count in found.equal_steps.items():
        text = f"equal bit by bit at {_steps(count)}"
        if any(one.role == role for one in found.steps):
            text += ", before they differ"
        yield WordLine(f"{role}s", text, "good" if not found.steps else "dim")
    for one in found.not_compared:
        why = (
            f"no figures of {folded(one.unread)}" if one.unread
            else "each rank has a shard of its own"
        )  # fmt: skip
        yield WordLine("", f"{one.role}s of {one.optimizer} were not compared: {why}", "dim")
    if found.asked == 1:
        ranks = {rank for one in found.figures for rank in one.ranks}
        text = f"only {folded(ranks) if ranks else 'one rank'} was asked: nothing to compare with"
        yield WordLine("", text, "warn")
        return
    for role in found.unlike:
        if not any(one.role == role for one in found.steps):
            text = (
                f"{role}s differ on all ranks, or are of different layouts: no replicas, so "
                "nothing is concluded"
            )
            yield WordLine("", text, "dim")
    if found.unclear:
        text = (
            f"{found.unclear:,} results differ that the program may have changed since: nothing is"
            " concluded"
        )
        yield WordLine("", text, "dim")
    if found.incomplete:
        text = f"{found.incomplete:,} ops were sampled by some members only"
        yield WordLine("", text, "dim")


def _op(
    one: OpDifference, names: GroupNames, site: Callable[[wire.Site | None], str]
) -> Iterator[WordLine]:
    where = " ".join(filter(None, (f"step {one.step}", site(one.site))))
    name = _op_name(one.kind, one.number, names.label(one.group), one.issuer)
    if one.odd:
        who = folded(one.odd)
        yield WordLine("differs", f"{who}: other bytes than the rest after {name}, {where}", "bad")
    else:
        text = f"members have different results of {name}, {where}; no side is the majority"
        yield WordLine("differs", text, "bad")
    yield WordLine("", _sides(one.sides), "dim")
    if one.equal_before:
        before = f"equal on all at #{one.equal_before} (step {one.equal_before_step})"
    else:
        before = "no earlier op was sampled on all members: it may have differed before"
    yield WordLine(
        "", f"{before}; {one.differing:,} of {one.compared:,} compared ops differ", "dim"
    )
    if one.changed:
        text = (
            "read when the backward or the wait had ended, or a step began: the op did that, or the"
            " program since then"
        )
        yield WordLine("", text, "warn")


def _step(one: StepDifference) -> Iterator[WordLine]:
    before = "before" if one.role == "gradient" else "after"
    when = f"{before} step {one.step} of {one.optimizer}"
    what = listed(one.names, 3)
    if one.odd:
        who = folded(one.odd)
        text = f"{who}: other {one.role}s than the rest {when}: {what}"
    else:
        text = f"replicas have different {one.role}s {when}, no side is the majority: {what}"
    yield WordLine("differs", text, "bad")
    yield WordLine(
        "", f"{len(one.names):,} of {one.read:,} that were read; {_sides(one.sides)}", "dim"
    )
    known = (
        f"equal on all at step {one.equal_before}"
        if one.equal_before >= 0
        else ("the first step that was sampled: it may have been so before")
    )
    yield WordLine("", known, "dim")


def brief_finding(found: Findings, names: GroupNames) -> str:
    """The first finding in a few words, "" where there is none."""
    if not found.any_fault:
        return ""
    words = finding_words(found, names, lambda _site: "")
    return next((one.text.partition("; ")[0] for one in words if one.tone == "bad"), "")


def next_step(found: Findings) -> str:
    """What to run next where something was found, "" where nothing was."""
    if not found.any_fault:
        return ""
    if (found.ops or found.bad) and not found.modules:
        return NO_MODULES
    if not any(one.role in ("gradient", "parameter") for one in found.figures):
        return "`frtop numbers --steps 20`: whether gradients or parameters differ or have NaN, too"
    if any(one.earliest for one in found.bad):
        return "`frtop numbers --first` right after the job's next start: who has it first"
    if found.steps:
        return (
            "`frtop numbers --steps 20` once more: whether it lasts. Where gradients are equal and"
            " parameters are not, it is the optimizer, the program, or the memory of that host"
        )
    return "`frtop capture`: a file with what ranks have recorded, and their notes of it"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _alike(one: BadNumbers) -> tuple[object, ...]:
    """What is one line where several ranks have it."""
    sample = one.sample.sample
    return (
        *(one.sample.group, one.sample.site, one.sample.issuer, one.sample.name, sample.number),
        *(sample.role, sample.step, sample.parameter, one.what, one.left_out, one.others_clean),
    )


def _bad(
    ones: Sequence[BadNumbers], names: GroupNames, site: Callable[[wire.Site | None], str]
) -> WordLine:
    one, sample = ones[0], ones[0].sample.sample
    first = ""
    if one.sample.group is not None:
        group = names.label(one.sample.group)
        name = _op_name(sample.kind, sample.number, group, one.sample.issuer)
        what = f"{name}, step {sample.step}"
        if sample.parameter:
            first = f"; the first one is in the gradient of {sample.parameter}"
    else:
        what = f"{one.sample.name}, step {sample.step}"
    line = site(one.sample.site)
    clean = f"; none in that of {folded(one.others_clean)}" if one.others_clean else ""
    who = folded(each.rank for each in ones)
    whose = f"its {sample.role}" if len(ones) == 1 else f"their {sample.role}s"
    text = f"{who}: {_counts(ones)} in {whose} of {what} {line}".rstrip() + first
    if one.earliest:
        clean += "; nothing was sampled before: it may have been so earlier"
    if one.left_out:
        return WordLine(one.what, f"{text}{clean}; the loss scaler left that step out", "dim")
    return WordLine(one.what, f"{text}{clean}", "bad")


def _counts(ones: Sequence[BadNumbers]) -> str:
    """`68 NaN`, `68 NaN each`, `3 to 68 NaN each`."""
    one = ones[0]
    samples = [each.sample.sample for each in ones]
    counts = [each.nans if one.what == "NaN" else each.infinities for each in samples]
    least, most = min(counts), max(counts)
    count = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{count} {one.what}" + (" each" if len(ones) > 1 else "")


def _overflow(one: BadNumbers) -> Iterator[WordLine]:
    """How far the dtype of an Inf reaches, and what tells that a cast has overflowed."""
    sample = one.sample.sample
    reach = REACHES.get(sample.dtype)
    if one.what != "Inf" or reach is None:
        return
    text = f"{sample.dtype} ends at {reach.largest:.5g}"
    if (value := largest(one.sample)) is not None:
        text += f", the largest finite value beside it is {value:.5g}"
    if (cast := one.cast) is not None:
        of_op = cast.role in ("input", "output")
        owner = f"{cast.role} of {cast.kind}" if of_op else f"{cast.role} {cast.kind}"
        text += (
            f"; the rank's {owner}, step {cast.step}, is {cast.dtype} and reaches"
            f" {cast.largest:.5g}: cast to {sample.dtype}, that is Inf"
        )
    yield WordLine("", text, "dim")


def _dtype(one: DtypeDifference, names: GroupNames) -> Iterator[WordLine]:
    if one.group is not None:
        name = _op_name(one.kind, one.number, names.label(one.group), one.issuer)
        what = f"{one.role} of {name}, step {one.step}"
    else:
        what = (
            f"{one.role}s of {one.optimizer}, step {one.step}: {listed(one.names, 3)},"
            f" {len(one.names):,} of {one.read:,}"
        )
    if one.odd:
        text = f"{folded(one.odd)}: another dtype than the rest in the {what}"
    else:
        text = f"ranks have different dtypes, no side is the majority, in the {what}"
    yield WordLine("dtype", text, "bad")
    yield WordLine("", _sides(one.sides), "dim")


def _op_name(kind: str, number: int, group: str, issuer: wire.Issuer | None) -> str:
    """`all_reduce #12 dp:0 (backward of layers.3.mlp)`."""
    by = brief_issuer(issuer)
    return f"{kind} #{number} {group}" + (f" ({by})" if by else "")


def _sides(sides: tuple[RankSide, ...]) -> str:
    return "; ".join(f"{side.value} on {folded(side.ranks)}" for side in sides[:4]) + (
        f" and {len(sides) - 4:,} more" if len(sides) > 4 else ""
    )
