"""The engine: from an observed frame to the verdicts and the health of the job.

It is pure, apart from what it must remember between frames (`Memory`). Everything else that it
keeps only saves work: a new engine with the same memory comes to the same judgement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from frtop_tui.diagnosis.annotate import Annotator
from frtop_tui.diagnosis.before_death import (
    BeforeDeath,
    remember,
    retrospect,
    word_retrospect,
)
from frtop_tui.diagnosis.blocked.ops_by_stack import OpsByStack
from frtop_tui.diagnosis.blocked.rank_index import RankIndex, Releases
from frtop_tui.diagnosis.cases import unfinished_ops
from frtop_tui.diagnosis.cases.at_rest.detect import (
    NotEnding,
    RestDetail,
    RestFound,
    RestState,
    find_at_rest,
)
from frtop_tui.diagnosis.cases.at_rest.words import rest_note
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.dead.detect import unread_rings
from frtop_tui.diagnosis.cases.dead.roots import DeathOrder
from frtop_tui.diagnosis.cases.mismatch.checksums import ChecksumHints, HintOutcome, OpsRequest
from frtop_tui.diagnosis.cases.mismatch.compare import KnownMismatches, LiveOps
from frtop_tui.diagnosis.cases.mismatch.words import unanswered_notes
from frtop_tui.diagnosis.cases.not_entered.detect import Withheld, absent
from frtop_tui.diagnosis.cases.not_entered.false_alarms import FalseAlarms
from frtop_tui.diagnosis.cases.registry import detect, prioritize
from frtop_tui.diagnosis.cases.slow.detect import SlowEpisodes, SlowState, slow, to_look_at
from frtop_tui.diagnosis.cases.stacks_alone.detect import states_of
from frtop_tui.diagnosis.cases.stacks_alone.words import stack_notes
from frtop_tui.diagnosis.cases.unobserved.detect import (
    StandingFound,
    StandingState,
    is_unobserved,
    standing_waits,
)
from frtop_tui.diagnosis.cases.unobserved.words import idle_note
from frtop_tui.diagnosis.confirmation import Confirmations
from frtop_tui.diagnosis.evidence.stack_location import locate
from frtop_tui.diagnosis.explain import MOST_LISTED, trace_of
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_graph import WaitGraph
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.health import as_far_as_seen, health_of, since_of
from frtop_tui.diagnosis.look_requests import (
    LookRequest,
    LookRequests,
    early_suspects,
    in_question,
    ranks_at_rest,
    ranks_needing_stacks,
)
from frtop_tui.diagnosis.model import Frame, Trace, Verdict, judged_frame, unjudged
from frtop_tui.diagnosis.thresholds import AGENT_QUIET_NS, MOST_VERDICTS
from frtop_tui.diagnosis.verdicts import death_notes, dropped_notes, long_wait_texts, word
from frtop_tui.job.model import Health, ObservedFrame
from frtop_tui.job.naming import JobKey, job_key

FORGET_NS: Final = 60_000_000_000
"""How often to forget where stacks were found to be: most of them are gone by then."""


@dataclass(slots=True)
class Memory:
    """What earlier frames contribute to the next judgement."""

    job: JobKey | None = None
    confirmations: Confirmations = field(default_factory=Confirmations)
    mismatches: KnownMismatches = field(default_factory=KnownMismatches)
    checksum_hints: ChecksumHints = field(default_factory=ChecksumHints)
    look_requests: LookRequests = field(default_factory=LookRequests)
    false_alarms: FalseAlarms = field(default_factory=FalseAlarms)
    releases: Releases = field(default_factory=Releases)
    rest: RestState = field(default_factory=RestState)
    standing: StandingState = field(default_factory=StandingState)
    slow: SlowState = field(default_factory=SlowState)
    slow_episodes: SlowEpisodes = field(default_factory=SlowEpisodes)
    before_death: BeforeDeath | None = None
    health: Health | None = None
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judged frame, and what to look at next to know more."""

    frame: Frame
    look_requests: tuple[LookRequest, ...] = ()
    ops_requests: tuple[OpsRequest, ...] = ()


class _Found(NamedTuple):
    """What one frame shows, before it is put into words."""

    findings: Sequence[Finding]
    dropped: Sequence[Finding]
    at_rest: RestFound
    standing: StandingFound
    long_waits: Sequence[WaitNode]
    slow: Sequence[Finding] = ()

    @property
    def said(self) -> tuple[Finding, ...]:
        """Findings that become verdicts."""
        return (*self.findings, *self.slow)


class Engine:
    """Judges the frames of one job in order; it starts over with another job."""

    def __init__(
        self,
        memory: Memory | None = None,
        *,
        explain: bool = False,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        """With `explain`, each judged frame has a trace of its stages.

        `give_way` is called often, and may pause for a moment.
        """
        self._give_way = give_way
        self.explained_nodes = MOST_LISTED if explain else 0
        """The most nodes of the wait-for graph in that trace; 0: no trace."""
        self.memory = memory if memory is not None else Memory()
        self._forget_at_ns = 0
        self._begin()

    def _begin(self) -> None:
        self._index = RankIndex(self._give_way)
        self._graph = WaitGraph(self._index)
        self._live_ops = LiveOps()
        self._ops_by_stack = OpsByStack()
        self._death_order = DeathOrder()
        self._annotator = Annotator(self._index)
        self._now_ns = 0

    def judge(self, frame: ObservedFrame) -> Judgement:
        """Judges one frame: each stage is one call."""
        self._start(frame)
        if not frame.ranks:
            return Judgement(unjudged(frame))
        context, hints = self._observe(self._ops_by_stack.added_to(frame))
        self._give_way()
        found = self._confirm(context, self._detect(context, hints))
        self._give_way()
        verdicts, notes = self._word(context, found)
        notes = (*notes, *unanswered_notes(hints.unanswered))
        is_compared = not hints.unanswered
        self._give_way()
        judged = self._annotate(context, found, verdicts, notes, is_compared=is_compared)
        if self.explained_nodes:
            judged = replace(judged, trace=self._trace(context, found))
        self._remember(context, found, judged)
        return Judgement(judged, self._request_looks(context, found), hints.wanted)

    def _start(self, frame: ObservedFrame) -> None:
        """Starts over for another job, or if the clock went back."""
        job = job_key(frame.job) if frame.job is not None else None
        if job != self.memory.job:
            self.memory = Memory(job)
            self._begin()
        elif frame.now_ns < self._now_ns:
            self._begin()  # deadlines kept from later frames are wrong
        self._now_ns = frame.now_ns
        if frame.now_ns >= self._forget_at_ns:
            self._forget_at_ns = frame.now_ns + FORGET_NS
            locate.cache_clear()

    def _observe(self, frame: ObservedFrame) -> tuple[Context, HintOutcome]:
        """Updates index and graph to `frame`: which ranks are blocked, and which wait for which."""
        memory = self.memory
        memory.false_alarms.learn(frame.ranks)
        self._index.update(frame.ranks)
        self._give_way()
        self._graph.update(frame.now_ns, _quiet_hosts(frame))
        self._give_way()
        self._live_ops.update(self._index.replaced)
        hints = memory.checksum_hints.compare(frame)
        memory.mismatches.keep(hints.found)
        mismatches = memory.mismatches.keep(self._live_ops.mismatches(frame.ranks))
        deaths = self._death_order.of(self._index)
        released = memory.releases.follow(self._index, frame.now_ns)
        context = Context(
            frame, self._index, self._graph, deaths, mismatches, released, memory.false_alarms
        )
        return context, hints

    def _detect(self, context: Context, hints: HintOutcome) -> _Found:
        """Finds root causes, the most urgent first."""
        findings, dropped = prioritize(context, [*detect(context), *hints.findings])
        at_rest = RestFound()
        if context.frame.recorded is None and all(one.kind == "mismatch" for one in findings):
            at_rest = find_at_rest(context, self.memory.rest)
            at_rest = at_rest.proven if findings else at_rest
        standing = StandingFound()
        if context.frame.recorded is None:
            standing = standing_waits(context, self.memory.standing)
        if not (findings or at_rest.findings):  # else they most likely follow from these
            findings = [*standing.findings]
        waits = [] if findings or at_rest.findings else _long_waits(context)
        findings = findings or unfinished_ops.detect(context)
        most = MOST_VERDICTS - len(at_rest.findings)
        found = [*findings[:most], *at_rest.findings]
        late = slow(context.frame, self.memory.slow) if self._may_be_slow(context, found) else ()
        return _Found(found, dropped, at_rest, standing, waits, late)

    @staticmethod
    def _may_be_slow(context: Context, findings: Sequence[Finding]) -> bool:
        """Whether the job runs, and nothing worse is wrong with it."""
        return not findings and _before(context) == "healthy"

    def _confirm(self, context: Context, found: _Found) -> _Found:
        """Confirms findings."""
        memory = self.memory
        findings = memory.confirmations.apply(found.findings, context)
        memory.confirmations.forget(context.now_ns)
        memory.false_alarms.record(findings, context.overdue)
        late = memory.confirmations.apply(memory.slow_episodes.apply(found.slow), context)
        memory.slow_episodes.forget(context.now_ns)
        return found._replace(findings=findings, slow=late)

    def _word(self, context: Context, found: _Found) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
        """Verdicts and notes: sentences are made only here."""
        frame = context.corrected_frame
        waits = long_wait_texts(found.long_waits, context.now_ns)
        notes = [*waits, *death_notes(context.deaths, found.findings)]
        if not found.findings:
            notes += stack_notes(states_of(context), context.ranks)
        if found.at_rest.note is not None:
            notes.append(rest_note(found.at_rest.note, frame))
        if found.standing.idle and not found.findings:
            notes.append(idle_note(found.standing.idle))
        notes += dropped_notes(found.dropped, found.findings)
        before = self.memory.before_death
        if context.deaths.some and before is not None:
            ended = retrospect(before, found.findings, context.deaths)
            if ended is not None:
                return word_retrospect(ended, frame, before.at_ns), tuple(notes)
            notes = [*(f"before that: {text}" for text in before.waits), *notes]
        return tuple(word(finding, frame) for finding in found.said), tuple(notes)

    def _annotate(
        self,
        context: Context,
        found: _Found,
        verdicts: tuple[Verdict, ...],
        notes: tuple[str, ...],
        *,
        is_compared: bool,
    ) -> Frame:
        """The judged frame: states of ranks and groups, and the health of the job."""
        frame = context.frame
        late = {
            rank: finding.since_ns
            for finding in reversed(found.findings)
            if finding.kind == "not_entered" or isinstance(finding.detail, Withheld | NotEnding)
            for rank in absent(finding)
        }
        waits = found.long_waits
        waiting_ns = waits[0].since_ns if waits else found.at_rest.open_since_ns
        found_health = health_of(_before(context), verdicts, waiting=bool(waits or waiting_ns))
        health = as_far_as_seen(frame, found_health, compared=is_compared)
        memory = self.memory
        if health != memory.health:
            memory.health, memory.since_ns = health, frame.now_ns
        return judged_frame(
            frame,
            self._annotator.ranks(frame, late),
            health=health,
            since_ns=since_of(frame, health, verdicts, waiting_ns, memory.since_ns),
            groups=self._annotator.groups(frame),
            verdicts=verdicts,
            notes=notes,
        )

    def _trace(self, context: Context, found: _Found) -> Trace:
        reason = self.memory.confirmations.reason
        return trace_of(
            context,
            (*found.findings, *found.slow),
            lambda finding: reason(finding, context),
            self.explained_nodes,
        )

    def _remember(self, context: Context, found: _Found, judged: Frame) -> None:
        """Keeps the findings while no rank has died."""
        if not context.deaths.some:
            waits = judged.notes if judged.health == "waiting" else ()
            self.memory.before_death = remember(
                self.memory.before_death, context.corrected_frame, found.findings, waits
            )

    def _request_looks(self, context: Context, found: _Found) -> tuple[LookRequest, ...]:
        """Which ranks to look at next."""
        requests, frame = self.memory.look_requests, context.frame
        nodes = [*context.overdue, *early_suspects(context)]
        at_rest = ranks_at_rest(frame.ranks, context.index.partial, frame.now_ns)
        slow_ones = to_look_at(self.memory.slow, frame.ranks, frame.now_ns) if found.slow else ()
        rest = (*found.at_rest.look_at, *found.standing.look_at, *at_rest, *slow_ones)
        others = (*ranks_needing_stacks(frame), *rest)
        # For ranks at rest, their detector knows which to look at, and how often.
        named = [one for one in found.findings if not isinstance(one.detail, RestDetail)]
        order = in_question(named, nodes, others)
        looks = requests.wanted(frame.ranks, order, found.findings, frame.now_ns)
        return (*looks, *requests.autopsies(frame.ranks, unread_rings(context), frame.now_ns))


def _long_waits(context: Context) -> list[WaitNode]:
    """Long waits, except those for unobserved transports."""
    waits = context.graph.long_waits(context.now_ns)
    return [node for node in waits if not is_unobserved(context, node)]


def _before(context: Context) -> Health:
    """The health before the diagnosis, as far as the evidence shows it.

    Stacks alone never prove that a job is healthy or starting, nor do numbers that were not seen to
    move. A job that has ended or does not report needs neither.
    """
    health = context.frame.health
    unproven = (health == "healthy" and not context.has_moved) or (
        health in ("healthy", "starting") and not context.has_numbers
    )
    return "undecided" if unproven else health


def _quiet_hosts(frame: ObservedFrame) -> dict[str, int]:
    """Hosts whose last report is not from just now, and when it was sent."""
    return {
        host.name: host.as_of_ns
        for host in frame.hosts
        if host.as_of_ns and frame.now_ns - host.as_of_ns > AGENT_QUIET_NS
    }
