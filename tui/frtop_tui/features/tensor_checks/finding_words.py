"""What samples say, in sentences: findings, loss scales, figures by group."""

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
    SameInputs,
    StepDifference,
)
from frtop_tui.features.tensor_checks.dtypes import DtypeDifference
from frtop_tui.features.tensor_checks.loss_scales import BackOff, ScaleHistory
from frtop_tui.features.tensor_checks.message_words import arrived_words, message_words
from frtop_tui.features.tensor_checks.precision import REACHES, largest
from frtop_tui.features.tensor_checks.samples import (
    OF_OPS,
    GroupFigures,
    GroupNames,
    peer_of,
)
from frtop_tui.features.tensor_checks.sent_and_received import OF_MESSAGES
from frtop_tui.job.issuer_words import brief_issuer
from frtop_tui.job.naming import folded, listed
from frtop_tui.job.units import percent
from frtop_tui.text.lines import WordLine
from frtop_tui.text.rank_words import sides_text

MOST_BACK_OFFS: Final = 3
MOST_FIGURES: Final = 48


def scale_words(one: ScaleHistory) -> Iterator[WordLine]:
    """The loss scale of one scaler, where it backed off, and which ranks have another one."""
    if one.difference is not None:
        found = one.difference
        who = (
            f"{folded(found.odd)}: another loss scale than the rest"
            if found.odd
            else "ranks have different loss scales, no side is the majority,"
        )
        before = f"; equal at step {found.equal_before}" if found.equal_before >= 0 else ""
        yield WordLine(
            "differs", f"{who} after step {found.step}: {sides_text(found.sides)}{before}", "bad"
        )
    if one.first is None or one.last is None:
        if one.unread:
            yield WordLine("loss scale", f"not read: {one.unread}", "dim")
        return
    (first, begun), (last, now) = one.first, one.last
    name = "" if one.scaler == "scaler 0" else f"{one.scaler}: "
    text = f"{name}{begun:,.6g} at step {first}, {now:,.6g} at step {last}; {one.updates:,} updates"
    offs = one.back_offs
    yield WordLine("loss scale", f"{text}, {len(offs):,} after an Inf or NaN", "strong")
    for off in offs[-MOST_BACK_OFFS:]:
        yield WordLine("", _back_off(off), "dim")
    if len(offs) > MOST_BACK_OFFS:
        yield WordLine("", f"and {len(offs) - MOST_BACK_OFFS:,} before", "dim")


def _back_off(one: BackOff) -> str:
    before = f"from {one.before:,.6g} " if one.before is not None else ""
    after = f"{before}to {one.after:,.6g}" if one.after is not None else "the scale was not read"
    return f"step {one.step}: Inf or NaN in the gradients of {folded(one.ranks)}, skipped; {after}"


def figure_words(found: Findings, names: GroupNames) -> Iterator[WordLine]:
    """Figures by group: one line for each kind of op, or for an optimizer's tensors, and dtype."""
    for one in found.figures[:MOST_FIGURES]:
        owner = names.label(one.group) if one.group is not None else one.owner
        yield WordLine(owner, _figures(one), "bad" if one.nans or one.infinities else "")
    if len(found.figures) > MOST_FIGURES:
        more = len(found.figures) - MOST_FIGURES
        yield WordLine("", f"and {more:,} more: --json has all", "dim")


def _figures(one: GroupFigures) -> str:
    what = f"{one.owner} {one.role}" if one.role in OF_OPS else f"{one.role}s"
    what = one.role if one.role in OF_MESSAGES else what
    what += f"{' shards' if one.shard else ''}, {one.dtype or 'unknown dtype'}"
    parts = [f"{what}, {folded(one.ranks)}: {one.samples:,} samples, {one.values:,} values"]
    parts += [f"{count:,} not read: {why}" for why, count in one.unread.most_common(2)]
    # What is NaN or Inf is in no mean and no norm.
    of_finite = f" of {one.finite:,} finite values" if one.nans or one.infinities else ""
    if one.mean is not None:
        parts.append(f"mean magnitude{of_finite} {one.mean:.3g}")
    if one.finite and one.norms is not None and one.last is not None:
        least, most = one.norms
        newest = f"{one.last[1]:.3g} at step {one.last[0]}"
        parts.append(f"norm{' of these' if of_finite else ''} {least:.3g} to {most:.3g}, {newest}")
    counts = [
        (one.nans, "NaN"), (one.infinities, "Inf"), (one.zeros, "zero"),
        (one.subnormals, _below(one.dtype)),
    ]  # fmt: skip
    parts += [f"{count:,} {name} ({_share(count, one.values)})" for count, name in counts if count]
    return "; ".join(parts)


def _below(dtype: str) -> str:
    reach = REACHES.get(dtype)
    return f"below {reach.smallest:.3g}, the smallest normal" if reach else "below normal"


def _share(count: int, values: int) -> str:
    return percent(count / values if values else 0.0)


MOST_BAD: Final = 8
MOST_PLACES: Final = 4
NO_MODULES: Final = (
    "`frtop recorder --modules on`, or `M` on the screen `:record`: then the module of an op is"
    " known"
)


def finding_words(
    found: Findings,
    names: GroupNames,
    site: Callable[[wire.Site | None], str],
    places: Mapping[int, str] = MappingProxyType({}),
) -> Iterator[WordLine]:
    """Differences, then NaN and Inf, then what is equal.

    `site` writes a line of the program; `places` has PID and host of named ranks.
    """
    for op in found.ops:
        yield from _op(op, names, site)
    yield from message_words(found.messages, names, site)
    for step in found.steps:
        yield from _step(step)
    for dtype in found.dtypes:
        yield from _dtype(dtype, names)
    for same in found.same:
        yield from _same(same, names, site)
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
    yield from arrived_words(found, names)
    yield from _rest(found, names)


def _rest(found: Findings, names: GroupNames) -> Iterator[WordLine]:
    """What was compared and is equal, and what was not compared."""
    for group, count in found.equal_ops.items():
        text = f"the results of {count:,} ops were equal bit by bit on all compared ranks"
        yield WordLine(names.label(group), text, "good" if not found.ops else "dim")
    for role, count in found.equal_steps.items():
        text = f"equal bit by bit at {_steps(count)}"
        if any(one.role == role for one in found.steps):
            text += ", until they differed"
        yield WordLine(f"{role}s", text, "good" if not found.steps else "dim")
    for one in found.not_compared:
        why = (
            f"no figures of {folded(one.unread)}" if one.unread
            else "each rank has its own shard"
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
                f"{role}s differ on all ranks, or have different layouts: no replicas, so nothing"
                " is concluded"
            )
            yield WordLine("", text, "dim")
    if found.unclear:
        text = (
            f"{found.unclear:,} results differ, but the program may have changed them since:"
            " nothing is concluded"
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
    yield WordLine("", sides_text(one.sides), "dim")
    if one.equal_before:
        before = f"equal on all at #{one.equal_before} (step {one.equal_before_step})"
    else:
        before = "no earlier op was sampled on all members: it may have begun before"
    yield WordLine(
        "", f"{before}; {one.differing:,} of {one.compared:,} compared ops differ", "dim"
    )
    if one.changed:
        text = (
            "read after the backward or the wait, or at the next step: the op caused it, or the"
            " program since then"
        )
        yield WordLine("", text, "warn")


def _same(
    one: SameInputs, names: GroupNames, site: Callable[[wire.Site | None], str]
) -> Iterator[WordLine]:
    where = " ".join(filter(None, (one.kind, names.label(one.group), site(one.site))))
    first, last = one.steps
    text = (
        f"all ranks have equal inputs of {where}, before it reduces them, in {one.ops:,} of"
        f" {one.ops:,} ops of steps {first} to {last}"
    )
    yield WordLine("same data", text, "bad")
    why = (
        "so they add nothing to each other. If each should train on batches of its own: without a"
        " DistributedSampler each loads all data, and one seed gives all the same order. Ranks that"
        " hold parts of one model may have equal inputs on purpose"
    )
    yield WordLine("", why, "dim")


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
        "", f"{len(one.names):,} of {one.read:,} that were read; {sides_text(one.sides)}", "dim"
    )
    known = (
        f"equal on all at step {one.equal_before}"
        if one.equal_before >= 0
        else "this is the first sampled step: it may have begun before"
    )
    yield WordLine("", known, "dim")


def brief_finding(found: Findings, names: GroupNames) -> str:
    """The first finding in a few words; "" if there is none."""
    if not found.any_fault:
        return ""
    words = finding_words(found, names, lambda _site: "")
    return next((one.text.partition("; ")[0] for one in words if one.tone == "bad"), "")


_NEXT: Final[Sequence[tuple[Callable[[Findings], object], str]]] = (
    (
        lambda found: found.same and not (found.ops or found.bad or found.steps),
        "give each rank its own share of the data: DistributedSampler, or a seed of its own",
    ),
    (
        lambda found: any(one.changed for one in found.messages),
        "let the sender wait for its isend before it writes to that buffer again",
    ),
    (lambda found: (found.ops or found.bad) and not found.modules, NO_MODULES),
    (
        lambda found: not any(one.role in ("gradient", "parameter") for one in found.figures),
        "`frtop numbers --steps 20`: do gradients or parameters differ or have NaN, too?",
    ),
    (
        lambda found: any(one.earliest for one in found.bad),
        "`frtop numbers --first` right after the job's next start: which rank has it first?",
    ),
    (
        lambda found: found.steps,
        (
            "`frtop numbers --steps 20` once more: does it last? If gradients are equal and"
            " parameters are not, suspect the optimizer, the program, or that host's memory"
        ),
    ),
    (
        lambda _: True,
        "`frtop capture`: a file with what ranks have recorded, and their notes about it",
    ),
)
"""The first that holds."""


def next_step(found: Findings) -> str:
    """What to run next; "" if nothing was found."""
    return next(text for holds, text in _NEXT if holds(found)) if found.any_fault else ""


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _alike(one: BadNumbers) -> tuple[object, ...]:
    """Equal for ranks whose samples one sentence names."""
    sample = one.sample.sample
    return (
        *(one.sample.group, one.sample.site, one.sample.issuer, one.sample.name, sample.number),
        *(sample.role, sample.step, sample.parameter, one.what, one.left_out, one.others_clean),
    )


def _bad(
    ones: Sequence[BadNumbers], names: GroupNames, site: Callable[[wire.Site | None], str]
) -> WordLine:
    one, sample = ones[0], ones[0].sample.sample
    if sample.role in OF_MESSAGES:
        return _bad_message(one, names, site)
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
    return _bad_line(one, f"{who}: {_counts(ones)} in {whose} of {what} {line}", first + clean)


def _bad_message(
    one: BadNumbers, names: GroupNames, site: Callable[[wire.Site | None], str]
) -> WordLine:
    """What a rank sent, or received from one whose own sample has none."""
    sample, peer = one.sample.sample, peer_of(one.sample)
    to = "to" if sample.role == "sent" else "from"
    whom = f"{to} rank {peer}" if peer is not None else f"{to} any rank"
    name = _op_name(sample.kind, sample.number, names.label(one.sample.group), one.sample.issuer)
    what = f"what it {sample.role} {whom}, {name}, step {sample.step}"
    clean = ""
    if one.received:
        which = "message" if one.received == 1 else f"{one.received:,} messages"
        clean = f"; none in the {which} that it had received before in that step"
    elif one.others_clean:
        clean = f"; none in what {folded(one.others_clean)} sent"
    text = f"rank {one.rank}: {_counts((one,))} in {what} {site(one.sample.site)}"
    return _bad_line(one, text, clean)


def _bad_line(one: BadNumbers, text: str, more: str) -> WordLine:
    if one.earliest:
        more += "; nothing was sampled before: it may have begun earlier"
    if one.left_out:
        more += "; the loss scaler skipped that step"
    return WordLine(one.what, text.rstrip() + more, "dim" if one.left_out else "bad")


def _counts(ones: Sequence[BadNumbers]) -> str:
    """`68 NaN`, `68 NaN each`, `3 to 68 NaN each`."""
    one = ones[0]
    samples = [each.sample.sample for each in ones]
    counts = [each.nans if one.what == "NaN" else each.infinities for each in samples]
    least, most = min(counts), max(counts)
    count = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{count} {one.what}" + (" each" if len(ones) > 1 else "")


def _overflow(one: BadNumbers) -> Iterator[WordLine]:
    """The largest value of an Inf's dtype, and what shows that a cast has overflowed."""
    sample = one.sample.sample
    reach = REACHES.get(sample.dtype)
    if one.what != "Inf" or reach is None:
        return
    text = f"{sample.dtype} ends at {reach.largest:.5g}"
    if (value := largest(one.sample)) is not None:
        text += f", the largest finite value beside it is {value:.5g}"
    if (cast := one.cast) is not None:
        of_op = cast.role in OF_OPS
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
    yield WordLine("", sides_text(one.sides), "dim")


def _op_name(kind: str, number: int, group: str, issuer: wire.Issuer | None) -> str:
    """`all_reduce #12 dp:0 (backward of layers.3.mlp)`."""
    by = brief_issuer(issuer)
    return f"{kind} #{number} {group}" + (f" ({by})" if by else "")
