"""Figures of all samples by group: what is communicated in which dtype, and how large it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from frtop_tui.features.tensor_checks.samples import RankSample
from frtop_tui.job.groups import Identifier

OF_TENSORS = ("input", "output", "gradient", "parameter")


@dataclass(slots=True)
class GroupFigures:
    """Sums over all samples of one kind of op of a group, or over an optimizer's tensors.

    `values` are those that were read. `magnitude` is the sum of the means of magnitudes, each
    weighted with `finite`.
    """

    group: Identifier | None  # None: of an optimizer, or a group that is not known
    owner: str  # the kind of the op, or the optimizer
    role: str
    dtype: str
    shard: bool
    ranks: set[int] = field(default_factory=set)
    samples: int = 0
    unread: Counter[str] = field(default_factory=Counter)  # samples without figures, by the reason
    values: int = 0
    finite: int = 0
    nans: int = 0
    infinities: int = 0
    zeros: int = 0
    subnormals: int = 0
    magnitude: float = 0.0
    norms: tuple[float, float] | None = None  # the least and the most, of one sample
    last: tuple[int, float] | None = None  # the newest step with a norm, and the most in it

    @property
    def mean(self) -> float | None:
        """The mean of magnitudes."""
        return self.magnitude / self.finite if self.finite else None

    def add(self, one: RankSample) -> None:
        """Adds a sample."""
        sample = one.sample
        self.ranks.add(one.rank)
        self.samples += 1
        if sample.error:
            self.unread[sample.error] += 1
            return
        share = sample.seen / sample.size if sample.size else 0
        values = round(sample.elements * share)
        self.values += values
        self.nans += sample.nans
        self.infinities += sample.infinities
        self.zeros += sample.zeros
        self.subnormals += sample.subnormals
        finite = values - sample.nans - sample.infinities
        if sample.magnitude is not None and finite > 0:
            self.finite += finite
            self.magnitude += sample.magnitude * finite
        if (norm := sample.norm) is not None:
            least, most = self.norms or (norm, norm)
            self.norms = min(least, norm), max(most, norm)
            step, value = self.last or (-1, 0.0)
            if sample.step > step:
                self.last = sample.step, norm
            elif sample.step == step:
                self.last = step, max(value, norm)


def figures_by_group(samples: Iterable[RankSample]) -> tuple[GroupFigures, ...]:
    """All figures: those of groups first, in the order in which they appear."""
    found: dict[tuple[object, ...], GroupFigures] = {}
    for one in samples:
        sample = one.sample
        if sample.role not in OF_TENSORS:
            continue
        of_op = sample.role in ("input", "output")
        owner = sample.kind if of_op else sample.taken
        key = one.group, owner, sample.role, sample.dtype, sample.shard
        figures = found.get(key)
        if figures is None:
            group = one.group if of_op else None
            figures = found[key] = GroupFigures(
                group, owner, sample.role, sample.dtype, sample.shard
            )
        figures.add(one)
    return tuple(sorted(found.values(), key=lambda one: (one.group is None, str(one.group))))
