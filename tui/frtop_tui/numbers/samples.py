"""Samples of all ranks, as far as they came; what the comparison reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from frtop_probe import wire
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.naming import group_label

MOST_SAMPLES = 20_000
"""Of one rank: the oldest are forgotten."""
NOTHING = wire.NumberState()


@dataclass(frozen=True, slots=True)
class RankSample:
    """One sample of a rank, with the group and the line that its ids stand for."""

    rank: int
    sample: wire.NumberSample
    group: Identifier | None  # None: of a parameter or gradient, or the group is not known
    site: wire.Site | None = None
    issuer: wire.Issuer | None = None

    @property
    def name(self) -> str:
        """Of a parameter or gradient: as in a state dict, else as its optimizer has it."""
        return self.sample.parameter or self.sample.kind


@dataclass(slots=True)
class SampledRank:
    """What one rank has said so far."""

    samples: list[RankSample] = field(default_factory=list)
    last: int = 0
    lost: int = 0
    state: wire.NumberState = NOTHING
    problem: str = ""

    def add(
        self, rank: int, response: wire.NumbersResponse, groups: Mapping[int, wire.Group]
    ) -> int:
        """Adds what is new in an answer; returns how many samples that were."""
        self.problem = response.help if response.error else ""
        self.state = response.state if not response.error else self.state
        sites, issuers = dict(response.sites), dict(response.issuers)
        new = [one for one in response.samples if one.n > self.last]
        for one in new:
            group = groups.get(one.group)
            known = identifier(group) if group is not None and group.exact else None
            site, issuer = sites.get(one.site), issuers.get(one.issuer)
            self.samples.append(RankSample(rank, one, known, site, issuer))
        if new:
            self.last = new[-1].n
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
