"""Samples of all ranks, as far as they came; what the comparison reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.features.tensor_checks.messages import NumberSample, SamplesResponse
from frtop_probe.wire.recording import NumberState
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.naming import group_label

MOST_SAMPLES = 20_000
"""Of one rank: the oldest are forgotten."""
NOTHING = NumberState()


@dataclass(frozen=True, slots=True)
class RankSample:
    """One sample of a rank, with the group and the line that its ids stand for."""

    rank: int
    sample: NumberSample
    group: Identifier | None  # None: of a parameter or gradient, or the group is not known
    site: wire.Site | None = None
    issuer: wire.Issuer | None = None
    at_ns: int = 0  # operator's clock, so that times of several hosts can be ordered

    @property
    def name(self) -> str:
        """Of a parameter or gradient: as in a state dict, else as its optimizer has it."""
        return self.sample.parameter or self.sample.kind


@dataclass(slots=True)
class SampledRank:
    """What one rank has said so far."""

    by: str = ""
    """Our own name as an operator."""
    pid: int = 0
    samples: list[RankSample] = field(default_factory=list)
    last: int = 0
    lost: int = 0
    state: NumberState = NOTHING
    problem: str = ""
    watch: int = 0
    """The number of the watch that was asked for; 0: not known yet."""
    gone: str = ""
    """Why it samples no more for us, "" while it does or where the watch has ended by itself."""

    @property
    def unfetched(self) -> int:
        """Samples that it has, and that will be asked for."""
        return 0 if self.gone else max(0, self.state.samples - self.last)

    def give_up(self, why: str) -> None:
        """Asks for no more samples."""
        self.gone = why
        self.state = replace(self.state, on=False, every=0, ops_left=0, steps_left=0, by="")

    def take_state(self, state: NumberState) -> bool:
        """Takes what the rank says of its watch; returns whether it is still ours."""
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
        """Adds what is new in an answer; returns how many samples that were.

        Args:
            rank: which one has answered.
            response: its answer.
            groups: of that rank, by its ids.
            clock_ns: added to its host's times it gives the operator's.
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
