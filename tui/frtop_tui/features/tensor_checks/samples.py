"""Samples of all ranks as far as they arrived, and their figures by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.features.tensor_checks.messages import NumberSample, NumberState, SamplesResponse
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.naming import group_label

MOST_SAMPLES = 20_000
"""Per rank; the oldest are dropped."""
NOTHING = NumberState()


@dataclass(frozen=True, slots=True)
class RankSample:
    """One sample of a rank, with its group and its line instead of their ids."""

    rank: int
    sample: NumberSample
    group: Identifier | None  # None: a parameter or gradient, or the group is not known
    site: wire.Site | None = None
    issuer: wire.Issuer | None = None
    at_ns: int = 0  # operator's clock, so that times of several hosts can be ordered

    @property
    def name(self) -> str:
        """A parameter's name as in a state dict, else the optimizer's own name for it."""
        return self.sample.parameter or self.sample.kind


@dataclass(slots=True)
class SampledRank:
    """The samples of one rank so far."""

    by: str = ""
    """Our own name as an operator."""
    pid: int = 0
    samples: list[RankSample] = field(default_factory=list)
    last: int = 0
    lost: int = 0
    state: NumberState = NOTHING
    problem: str = ""
    watch: int = 0
    """The number of our watch; 0 while it is not known yet."""
    gone: str = ""
    """Why it no longer samples for us; "" while it does, or if the watch ended by itself."""

    @property
    def unfetched(self) -> int:
        """Samples that it has and that we will still ask for."""
        return 0 if self.gone else max(0, self.state.samples - self.last)

    def give_up(self, why: str) -> None:
        """Stops asking for samples."""
        self.gone = why
        self.state = replace(self.state, on=False, every=0, ops_left=0, steps_left=0, by="")

    def take_state(self, state: NumberState) -> bool:
        """Takes the state of the rank's watch; returns whether it is still our watch."""
        if self.watch and state.watch not in (0, self.watch):
            self.give_up(f"its sampling was replaced by one for {state.by or 'somebody else'}")
            return False
        self.state = state
        if not state.every and state.by not in ("", self.by):
            self.problem = f"its sampling was ended by {state.by}"
        return True

    def add(
        self,
        rank: int,
        response: SamplesResponse,
        groups: Mapping[int, wire.Group],
        clock_ns: int = 0,
    ) -> int:
        """Adds the new samples of an answer, and returns how many there were.

        `groups` are the rank's, by its ids; its host's times plus `clock_ns` are the operator's.
        """
        self.problem = response.help if response.error else ""
        if not response.error and not self.take_state(response.state):
            return 0
        sites, issuers = dict(response.sites), dict(response.issuers)
        new = [one for one in response.samples if one.n > self.last]
        for one in new:
            group = groups.get(one.group)
            known = identifier(group) if group is not None and group.exact else None
            site, issuer = sites.get(one.site), issuers.get(one.issuer)
            at_ns = one.at_ns + clock_ns
            self.samples.append(RankSample(rank, one, known, site, issuer, at_ns))
        if new:
            self.last = new[-1].n
        elif not response.error and not response.state.on:
            self.last = response.state.samples  # the rest were of earlier watches
        self.lost += response.lost
        del self.samples[:-MOST_SAMPLES]
        return len(new)


@dataclass(frozen=True, slots=True)
class GroupNames:
    """What groups are called, and who is in them."""

    labels: Mapping[Identifier, str]

    @classmethod
    def of(cls, groups: Iterable[wire.Group]) -> GroupNames:
        """From the groups of all ranks."""
        found = {identifier(one): group_label(one.name, one.description) for one in groups}
        return cls(found)

    def label(self, group: Identifier | None) -> str:
        """The group as people name it."""
        return self.labels.get(group, group[0]) if group is not None else ""


def members(group: Identifier) -> tuple[int, ...]:
    """The ranks of a group."""
    return members_of(group[1])


def peer_of(one: RankSample) -> int | None:
    """The rank at the other end of a message; None if it has none, or receives from any."""
    place = one.sample.peer
    ranks = members(one.group) if one.group is not None else ()
    return ranks[place] if 0 <= place < len(ranks) else None


OF_OPS = ("input", "output", "sent", "received")
OF_TENSORS = (*OF_OPS, "gradient", "parameter")


@dataclass(slots=True)
class GroupFigures:
    """Sums over all samples of one kind of op in a group, or over an optimizer's tensors.

    `values` counts those that were read; `magnitude` sums the magnitudes of the finite ones.
    """

    group: Identifier | None  # None: an optimizer's, or the group is not known
    owner: str  # the kind of the op, or the optimizer
    role: str
    dtype: str
    shard: bool
    ranks: set[int] = field(default_factory=set)
    samples: int = 0
    unread: Counter[str] = field(default_factory=Counter)  # samples without figures, by reason
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
        """The mean magnitude."""
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
    """All figures, those of groups first."""
    found: dict[tuple[object, ...], GroupFigures] = {}
    for one in samples:
        sample = one.sample
        if sample.role not in OF_TENSORS:
            continue
        of_op = sample.role in OF_OPS
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
