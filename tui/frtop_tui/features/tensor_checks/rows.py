"""Every sample as a row, for a terminal of 80 columns and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final

from frtop_tui.features.tensor_checks.events import SampleRow
from frtop_tui.features.tensor_checks.samples import OF_OPS, GroupNames, RankSample, peer_of
from frtop_tui.features.tensor_checks.sent_and_received import OF_MESSAGES
from frtop_tui.job.issuer_words import brief_issuer
from frtop_tui.job.stack_frames import site_line

ROLES: Final = ("input", "output", "sent", "received", "found_inf", "loss_scale")
CHANGED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "late": "the program, between the op's end and its wait",
        "backward": "the program, before the backward had ended",
        "step": "the program, before the next optimizer step",
    }
)
"""What may have changed the bytes since the op, by `taken`."""
Op = tuple[object, ...]


def ordered(samples: Iterable[RankSample]) -> list[RankSample]:
    """Samples by step, op, role and rank; ops of a step by the time of their first sample."""
    keyed = [(_op(one), one) for one in samples]
    first: dict[Op, int] = {}
    for key, one in keyed:
        first[key] = min(one.at_ns, first.get(key, one.at_ns))
    keyed.sort(
        key=lambda row: (
            row[1].sample.step, first[row[0]], str(row[0]), _place(row[1].sample.role),
            row[1].rank, row[1].at_ns,
        )
    )  # fmt: skip
    return [one for _, one in keyed]


def _op(one: RankSample) -> Op:
    """Equal for the samples of one op, message or parameter, on all ranks, in one step."""
    sample, peer = one.sample, peer_of(one)
    if sample.role in OF_MESSAGES and sample.message and peer is not None:
        ends = (one.rank, peer) if sample.role == "sent" else (peer, one.rank)
        return (sample.step, one.group, "message", *ends, sample.tag, sample.message)
    if sample.role in OF_OPS:
        own = None if one.group is not None and sample.role not in OF_MESSAGES else one.rank
        return (sample.step, one.group, sample.group if own is not None else 0, own,
                sample.kind, sample.number)  # fmt: skip
    role = sample.role if sample.role not in ROLES else ""
    return (sample.step, sample.taken, role, sample.number)


def _place(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)


def row_of(one: RankSample, names: GroupNames) -> SampleRow:
    """The row of a sample."""
    sample = one.sample
    of_op = sample.role in OF_OPS
    return SampleRow(
        step=sample.step,
        number=sample.number,
        kind=sample.kind,
        group=names.label(one.group),
        rank=one.rank,
        role=sample.role,
        name=sample.parameter if of_op else one.name,
        dtype=sample.dtype,
        shape=sample.shape,
        elements=sample.elements,
        nans=sample.nans,
        infinities=sample.infinities,
        zeros=sample.zeros,
        subnormals=sample.subnormals,
        minimum=sample.minimum,
        maximum=sample.maximum,
        magnitude=sample.magnitude,
        norm=sample.norm,
        checksum=sample.checksum,
        taken=sample.taken,
        may_have_changed=CHANGED.get(sample.taken, ""),
        read_bytes=sample.seen,
        size=sample.size,
        shard=sample.shard,
        error=sample.error,
        peer=peer_of(one),
        tag=sample.tag,
        message=sample.message,
        site=one.site,
        module=brief_issuer(one.issuer),
        at_ns=one.at_ns,
    )


def row_lines(samples: Iterable[RankSample], names: GroupNames, most: int) -> Iterator[str]:
    """A line for each sample, under a line for its op; at most `most`."""
    ones = ordered(samples)
    shown = ones[:most]
    if not shown:
        return
    figures = ("NaN", "Inf", "min", "max", "mean |x|", "norm")
    yield _line("rank", "role", figures, "read")
    for heading, rows in groupby(shown, lambda one: _heading(one, names)):
        yield heading
        yield from map(_row, rows)
    if len(ones) > most:
        yield f"and {len(ones) - most:,} more: --rows {len(ones)}"
    for taken, what in CHANGED.items():
        if any(one.sample.taken == taken for one in shown):
            yield f"{_short(taken)}: may have been changed by {what}"


def _heading(one: RankSample, names: GroupNames) -> str:
    sample, group, peer = one.sample, names.label(one.group), peer_of(one)
    what = f"{sample.dtype} {sample.shape}{' shard' if sample.shard else ''}"
    if sample.role in OF_MESSAGES and sample.message and peer is not None:
        sender, receiver = (one.rank, peer) if sample.role == "sent" else (peer, one.rank)
        op = f"message #{sample.message} {group} from rank {sender} to {receiver}"
        op += f", tag {sample.tag}" if sample.tag else ""
        return f"step {sample.step}  {op}  {what}".rstrip()
    if sample.role in OF_OPS:
        parts = (f"{sample.kind} #{sample.number} {group}".rstrip(), site_line(one.site))
        module = brief_issuer(one.issuer)
        op = "  ".join(filter(None, (*parts, module and f"({module})")))
        return f"step {sample.step}  {op}  {what}".rstrip()
    if sample.role in ROLES:
        return f"step {sample.step}  loss scale of {sample.taken}"
    return f"step {sample.step}  {one.name} of {sample.taken}  {what}".rstrip()


def _row(one: RankSample) -> str:
    sample = one.sample
    role = sample.role.replace("_", " ")
    if sample.error:
        return f"{one.rank:>6}  {role:<10}not read: {sample.error}"
    figures = (_count(sample.nans), _count(sample.infinities), *map(
        _figure, (sample.minimum, sample.maximum, sample.magnitude, sample.norm)
    ))  # fmt: skip
    read = sample.taken if sample.role == "sent" else _short(sample.taken)
    return _line(str(one.rank), role, figures, read)


def _line(rank: str, role: str, figures: Sequence[str], read: str) -> str:
    nans, infinities, *rest = figures
    cells = "".join(f"{cell:>10}" for cell in rest)
    return f"{rank:>6}  {role:<10}{nans:>7}{infinities:>7}{cells}  {read}".rstrip()


def _short(taken: str) -> str:
    if taken not in CHANGED:
        return ""
    return "bwd" if taken == "backward" else taken


def _count(number: int) -> str:
    return f"{number:,}" if number < 100_000 else f"{number:.1e}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
