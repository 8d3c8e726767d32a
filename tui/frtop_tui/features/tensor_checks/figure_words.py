"""Loss scales, and figures by group, in sentences: for screens and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frtop_tui.features.tensor_checks.by_group import GroupFigures
from frtop_tui.features.tensor_checks.comparison import Findings
from frtop_tui.features.tensor_checks.loss_scales import BackOff, ScaleHistory
from frtop_tui.features.tensor_checks.precision import REACHES
from frtop_tui.features.tensor_checks.samples import GroupNames
from frtop_tui.job.naming import folded
from frtop_tui.job.units import percent
from frtop_tui.text.plain import WordLine

MOST_BACK_OFFS: Final = 3
MOST_FIGURES: Final = 48


def scale_words(one: ScaleHistory) -> Iterator[WordLine]:
    """The loss scale of one scaler, where it backed off, and who has another one."""
    if one.difference is not None:
        found = one.difference
        who = (
            f"{folded(found.odd)}: another loss scale than the rest"
            if found.odd
            else "ranks have different loss scales, no side is the majority,"
        )
        sides = "; ".join(f"{side.value} on {folded(side.ranks)}" for side in found.sides[:4])
        before = f"; equal at step {found.equal_before}" if found.equal_before >= 0 else ""
        yield WordLine("differs", f"{who} after step {found.step}: {sides}{before}", "bad")
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
    return f"step {one.step}: Inf or NaN in the gradients of {folded(one.ranks)}, left out; {after}"


def figure_words(found: Findings, names: GroupNames) -> Iterator[WordLine]:
    """Figures by group: one line for each kind of op, or for an optimizer's tensors, and dtype."""
    for one in found.figures[:MOST_FIGURES]:
        owner = names.label(one.group) if one.group is not None else one.owner
        yield WordLine(owner, _figures(one), "bad" if one.nans or one.infinities else "")
    if len(found.figures) > MOST_FIGURES:
        more = len(found.figures) - MOST_FIGURES
        yield WordLine("", f"and {more:,} more: --json has all", "dim")


def _figures(one: GroupFigures) -> str:
    of_op = one.role in ("input", "output")
    what = f"{one.owner} {one.role}" if of_op else f"{one.role}s"
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
