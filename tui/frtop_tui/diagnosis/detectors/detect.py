"""One frame's case: deaths, disagreements and waits brought together into verdicts.

The order is that of causes. A disagreement explains the deaths and waits that it leads
to; a death explains the waits for the dead; what is left is followed to those who have
not entered.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from frtop_tui.diagnosis.blocked.group_frontier import last_issued_number, local_group_id
from frtop_tui.diagnosis.blocked.patience import patience_ns
from frtop_tui.diagnosis.blocked.rank_index import RankIndex
from frtop_tui.diagnosis.detectors.certainty import (
    CERTAIN,
    belong_to_heard_hosts,
    doubt,
    members_known,
    reach,
)
from frtop_tui.diagnosis.detectors.deadlock import cycle, is_early
from frtop_tui.diagnosis.detectors.deaths.laggards import laggards
from frtop_tui.diagnosis.detectors.deaths.roots import Death
from frtop_tui.diagnosis.detectors.mismatch import unaligned as uncounted
from frtop_tui.diagnosis.detectors.mismatch.compare import NEAR, Mismatch
from frtop_tui.diagnosis.detectors.not_entered import Absentees, SameCause, blame
from frtop_tui.diagnosis.detectors.stuck.dead_links import by_links
from frtop_tui.diagnosis.detectors.stuck.device_lag import behind
from frtop_tui.diagnosis.detectors.stuck.last_entry import is_fresh
from frtop_tui.diagnosis.detectors.stuck.rendezvous import met_in_vain
from frtop_tui.diagnosis.evidence.progress import ProgressSeen, progress_of
from frtop_tui.diagnosis.evidence.step_pace import may_be_slow_step
from frtop_tui.diagnosis.graph.wait_graph import WaitGraph, in_order
from frtop_tui.diagnosis.graph.wait_node import WaitNode, rank_set
from frtop_tui.diagnosis.history.memory import Memory, is_second_look_due, look_stamp
from frtop_tui.diagnosis.look_requests import SUSPECTS_PER_POINT
from frtop_tui.diagnosis.model import Verdict
from frtop_tui.diagnosis.thresholds import EARLY_NS
from frtop_tui.diagnosis.wording import deaths as obituary
from frtop_tui.diagnosis.wording import verdict as words
from frtop_tui.diagnosis.wording.absence import absence_of, never_joined
from frtop_tui.job.model import ObservedFrame
from frtop_tui.job.naming import folded

SKEW_NS = 1_000_000_000
"""Hosts speak at different moments: what one rank did last may be a second away."""
MOST_ROOTS = 16
"""Nobody reads more, and each costs a pass over the points."""

READ_NS = 2_000_000_000
"""The rings of the dead are read by then, or will not be."""


class Case:
    """The reasoning about one frame."""

    def __init__(
        self, frame: ObservedFrame, index: RankIndex, nodes: WaitGraph, memory: Memory
    ) -> None:
        """Args: survey, points: as of `frame`."""
        self.frame = frame
        self._now = frame.now_ns
        self._survey, self._views = index, index.views
        self._suspicions = memory.suspicions
        self._taken_back = memory.false_alarms
        self._deaths = index.deaths
        self.nodes = nodes
        self.overdue_nodes = nodes.overdue(frame.now_ns)
        self._found = memory.found.keep(index.told.mismatches(frame.ranks))
        self._explained: set[int] = set()  # ids of points that need no verdict of their own
        self._unread = False  # whether it is open what killed the dead

    def verdicts(self) -> list[Verdict]:
        """Root causes first."""
        found = [
            *self._mismatches(),
            *self._dead(),
            *self._left(),
            *self._circles(),
            *self._absent(),
        ]
        return sorted(found, key=words.urgency)

    def suspicious(self) -> list[WaitNode]:
        """Points worth a look, some before their wait is out of the ordinary.

        So there is something to compare with when it is.
        """
        overdue = set(self.overdue_nodes)
        early = [node for node in self.nodes.nodes_where("early", self._now) if node not in overdue]
        early = sorted(in_order(early), key=lambda node: node.since_ns)[:4]
        for node in early:
            self.nodes.look_into(node, self._now)
        return [*self.overdue_nodes, *early]

    def ranks_needing_stacks(self) -> list[int]:
        """Ranks of groups that stand still unevenly without a word of completion.

        Such are the ops of devices, and those of which a program asks again and again
        whether they are complete: only stacks tell who waits.
        """
        found: list[int] = []
        for group in self.frame.groups:
            last = group.last
            if last is None or not (group.exact and group.late) or (last.tracked and last.done_ns):
                continue
            patience = patience_ns(last, None) if last.tracked else EARLY_NS
            if group.idle_s(self._now) * 1e9 > patience:
                late = set(group.late)
                ahead = [rank for rank in group.members if rank not in late]
                found += [*group.late[:4], *ahead[:4]]
        return found

    def unopened(self) -> list[int]:
        """Dead ranks whose last ops may tell of a disagreement that killed them."""
        deaths = self._deaths.every
        if not any(death.nature in ("abort", "network") for death in deaths):
            return []
        views = ((death.rank, self._views[death.rank].snapshot) for death in deaths)
        return [rank for rank, look in views if look is None or not look.ops]

    def notes(self, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
        """Deaths that no verdict speaks of."""
        spoken = {rank for verdict in verdicts for rank in verdict.culprits}
        if self._unread or any(verdict.kind in ("dead", "mismatch") for verdict in verdicts):
            return ()
        return tuple(
            f"rank {death.rank} died: {death.text}; nobody waits for it"
            for death in self._deaths.first[:4]
            if death.rank not in spoken
        )

    def _mismatches(self) -> list[Verdict]:
        made = []
        for one in self._found:
            # All points: a disagreement needs no long wait to explain one.
            nodes = [
                node for node in self.nodes.all.values() if one.successors(node.group, node.number)
            ]
            self._explained |= {id(node) for node in nodes}
            victims = {rank for node in nodes for rank in node.waiting}
            fatal = {death.rank for death in self._caused_by(one)}
            victims |= fatal
            verdict = words.mismatch(one, self.frame, victims, fatal=bool(fatal))
            # Agents forget ranks some time after they have ended.
            known = [self._views.get(party.ranks[0]) for party in one.parties]
            if any(view.dumped for view in known if view is not None):
                verdict = replace(verdict, confidence="suspect")
            made.append(verdict)
        return made

    def _caused_by(self, found: Mismatch) -> list[Death]:
        """Deaths that a disagreement leads to: everything but causes of their own."""
        members = {rank for party in found.parties for rank in party.ranks}
        deaths = self._deaths.every
        if all(d.rank not in members or self._has_passed(d.rank, found) for d in deaths):
            return []
        return [death for death in deaths if death.nature != "own"]

    def _has_passed(self, rank: int, found: Mismatch) -> bool:
        """Whether a rank had long completed the op in disagreement: it died of another thing."""
        view, last = self._views[rank], found.number + NEAR
        if not found.parties[0].op.tracked or last_issued_number(view, found.group) <= last:
            return False
        mine = local_group_id(view, found.group)
        return not any(op.group == mine and not op.p2p and op.number <= last for op in view.pending)

    def _dead(self) -> list[Verdict]:
        roots, followers = self._deaths.roots, self._deaths.followers
        explained = {death.rank for one in self._found for death in self._caused_by(one)}
        roots = tuple(
            group for group in roots if not all(death.rank in explained for death in group)
        )
        if not roots:
            return self._unrooted([d for d in followers if d.rank not in explained])
        first = [death for group in roots for death in group]
        every = {death.rank for death in first}
        nodes = self.nodes.at({*every, *(d.rank for d in followers)}, self._now)
        self._explained |= {id(node) for node in nodes}
        failed = any(death.failed for death in first)
        if not nodes and not followers and not failed and self._nobody_needs(every):
            return []
        behind = {death.rank for death in followers}
        self._unread = self._may_be_victims(first)
        if self._unread:
            return [obituary.aborted(self.frame, first, behind)]
        made = []
        for index, group in enumerate(roots):
            mine = nodes if index == 0 else []
            verdict = obituary.dead(self.frame, group, mine, behind if index == 0 else set())
            key = ("dead", tuple(death.rank for death in group))
            made.append(self._confirmed(verdict, key, self._now))
        return made

    def _may_be_victims(self, deaths: Sequence[Death]) -> bool:
        """Aborted just now, and what the dead had issued last is not known yet."""
        fresh = self._now - min(death.at_ns for death in deaths) < READ_NS
        aborted = all(death.nature == "abort" for death in deaths)
        return fresh and aborted and bool(self.unopened())

    def _nobody_needs(self, dead: set[int]) -> bool:
        """All the others have left cleanly, or it died after it was done itself."""
        others = [view for rank, view in self._views.items() if rank not in dead]
        return all(view.state == "done" for view in others) and bool(others)

    def _unrooted(self, followers: Sequence[Death]) -> list[Verdict]:
        """Everybody followed: somebody left cleanly, or was behind when time ran out."""
        broken = [d for d in followers if d.nature in ("network", "timeout")]
        if not broken:
            return []
        victims = {death.rank for death in broken}
        behind = laggards(self.frame, victims)
        gone = [rank for rank in sorted(behind) if self._views[rank].state == "done"]
        if gone:
            # Some broke off, some still wait: one departure, one verdict.
            nodes = self.nodes.at(gone, self._now)
            self._explained |= {id(node) for node in nodes}
            victims |= {rank for node in nodes for rank in node.waiting}
            node = nodes[0] if nodes else None
            missed = behind[gone[0]]
            return [obituary.exited(self.frame, gone, victims, node=node, missed=missed)]
        living = [rank for rank in sorted(behind) if self._views[rank].exit_info is None]
        if living and all(death.nature == "network" for death in broken):
            progress = progress_of(self._views[living[0]], self._now)
            # Those that still wait for it, and for nobody else, say no more than the dead.
            nodes = [p for p in self.nodes.at(living, self._now) if {*p.free} <= {*living}]
            self._explained |= {id(node) for node in nodes}
            waiting = {rank for node in nodes for rank in node.waiting}
            left = obituary.left_group(self.frame, living, broken, waiting, progress)
            return [self._confirmed(left, ("left", tuple(living)), self._now)]
        if behind and any(death.nature == "timeout" for death in broken):
            late = sorted(behind)
            if any(rank in node.free for node in self.overdue_nodes for rank in late):
                return []  # others still wait for it: there is more to be said
            return [obituary.timed_out(self.frame, late, broken, behind[late[0]])]
        verdict = obituary.broken(self.frame, broken)
        return [self._confirmed(verdict, ("broken", len(broken)), self._now)]

    def _left(self) -> list[Verdict]:
        """Ranks that ended cleanly and are waited for."""
        left = self._survey.postures["done"]
        if not left:
            return []
        made: dict[tuple[int, ...], tuple[WaitNode, set[int]]] = {}
        for node in self.nodes.at(left, self._now):
            gone = tuple(rank for rank in node.ended if self._views[rank].state == "done")
            settled = self._now - node.since_ns >= SKEW_NS
            # A receive that nobody sits in may never complete, and means nothing.
            left_behind = node.op.p2p and not any(wait.sure for wait in node.waits)
            if not gone or not settled or left_behind or id(node) in self._explained:
                continue
            self._explained.add(id(node))
            _, victims = made.setdefault(gone, (node, set()))
            victims |= set(node.waiting)
        return [
            obituary.exited(self.frame, gone, victims, node=node)
            for gone, (node, victims) in made.items()
        ]

    def _circles(self) -> list[Verdict]:
        made = []
        # However unusual: ranks that wait for each other will not stop doing so.
        settled = self.nodes.settled(self._now)
        open_points = [node for node in settled if id(node) not in self._explained]
        for ring in self.nodes.cycles(open_points):
            self._explained |= {id(node) for node in ring}
            key = ("cycle", frozenset(node.id for node in ring))
            if is_early(ring, self._now):
                continue
            verdict = cycle(self.frame, ring)
            sure = not verdict.missing
            made.append(self._confirmed(verdict, key, self._now) if sure else verdict)
        return made

    def _absent(self) -> list[Verdict]:
        made: dict[object, Verdict] = {}
        assigned: set[int] = set()
        early = self._kept_by_stopped()
        for node in [*self.nodes.endpoints(self.overdue_nodes), *early]:
            if id(node) in self._explained or node.ended:
                continue
            if len(made) >= MOST_ROOTS:
                break
            fresh = [rank for rank in node.free if rank not in assigned]
            if node in early:
                fresh = [rank for rank in fresh if self._views[rank].state == "stopped"]
                if not fresh:
                    continue
            if fresh:
                assigned |= set(fresh)
                for verdict in self._blame(node, fresh):
                    made[verdict.culprits] = verdict
            elif node.entered_by_all and not is_fresh(self._views, node, self._now):
                verdict = self._stuck(node)
                made[verdict.headline] = verdict
            elif node.unobserved and not node.free and not node.blocked_at:
                verdict = self._unseen(node)
                made[verdict.headline] = verdict
        return list(made.values())

    def _kept_by_stopped(self) -> list[WaitNode]:
        """Points that wait for a stopped process: that takes no patience to be told."""
        stopped = [
            rank
            for rank in self._survey.postures["stopped"]
            # Not one that a tracer holds for a moment.
            if self._now - self._views[rank].state_since_ns >= SKEW_NS
        ]
        if not stopped:
            return []
        return [
            node
            for node in self.nodes.at(stopped, self._now)
            if node not in self.overdue_nodes and self._now - node.since_ns >= SKEW_NS
        ]

    def _blame(self, node: WaitNode, sinks: Sequence[int]) -> list[Verdict]:
        """One verdict for each cause."""
        found = blame(self._views, sinks, self._now)
        made = []
        for culprits in found.culprits:
            others = self.nodes.nodes_awaiting(culprits.ranks, self.overdue_nodes)
            nodes = [node, *(other for other in others if other is not node)]
            waiting = self.nodes.rank_set(nodes)
            verdict = words.not_entered(self.frame, nodes, waiting, culprits, found)
            if not any(map(members_known, nodes)):
                made.append(words.doubted(verdict, node))
                continue
            made.append(self._confirm_absent(verdict, node, culprits.ranks))
        return made

    def _confirm_absent(self, verdict: Verdict, node: WaitNode, ranks: Sequence[int]) -> Verdict:
        key = ("not_entered", tuple(ranks), node.id)
        views = [self._views[rank] for rank in ranks[:SUSPECTS_PER_POINT]]
        stamp = look_stamp(views)
        if verdict.why.cause in CERTAIN:
            stamp = self._now
        confirmed = self._confirmed(verdict, key, stamp)
        if verdict.progress == "unknown" and is_second_look_due(views):
            return verdict  # that it is there is sure; whether it gets anywhere soon will be
        stalled = verdict.progress == "none" and verdict.why.cause not in CERTAIN
        slow = any(may_be_slow_step(view, self._now) for view in views)
        slow = slow or self._taken_back.was_false_alarm(node, self._now)
        return verdict if stalled and slow else confirmed

    def _confirmed(self, verdict: Verdict, key: tuple[object, ...], stamp: int | None) -> Verdict:
        if stamp is not None and self._suspicions.confirms(key, stamp, self._now):
            return replace(verdict, confidence="confirmed")
        return verdict

    def _stuck(self, node: WaitNode) -> Verdict:
        odd = uncounted.parted(self.nodes.all.values(), node)
        if odd is not None:
            made = words.mismatch(odd.found, self.frame, set(node.members), fatal=False)
            made = replace(made, confidence="suspect", missing=(odd.missing,))
            return self._confirmed(made, ("uncounted", node.id, made.parties), self._now)
        late = behind(self._views, node)
        if late is not None:
            progress = progress_of(self._views[late.ranks[0]], self._now).progress
            made = words.device_behind(self.frame, node, late, progress)
            key = ("device", node.id, late.ranks)
            return self._confirmed(made, key, look_stamp([self._views[r] for r in late.ranks]))
        halted = [
            view
            for rank in node.members
            if (view := self._views.get(rank)) is not None and view.state == "stopped"
        ]
        culprit = halted[0] if len(halted) == 1 else None
        absence = absence_of(culprit, self._now) if culprit is not None else None
        head = ""
        if culprit is None and (meeting := met_in_vain(self._views, node)):
            head, absence = meeting
        made = words.stuck(self.frame, node, culprit, absence, head)
        if culprit is None and (why_not := doubt(self._views, node)):
            made = words.undecided(self.frame, node, *why_not)
        if culprit is None:
            made = by_links(made, self._views, node)
        return self._confirmed(made, ("stuck", node.id, made.culprits), self._now)

    def _unseen(self, node: WaitNode) -> Verdict:
        never = [rank for rank in node.unobserved if rank not in self._views]
        if node.op.pseudo and never:
            seen = ProgressSeen("unknown", "never_heard")
            culprits = SameCause(tuple(never), never_joined(never), seen)
            made = words.not_entered(
                self.frame, [node], rank_set(node.waiting), culprits, Absentees((culprits,))
            )
            if not members_known(node):
                return words.doubted(made, node)
            if not belong_to_heard_hosts(self._views, never):
                return made
            return self._confirmed(made, ("never", node.id, tuple(never)), self._now)
        made = words.undecided(
            self.frame,
            node,
            f"{folded(node.unobserved)} cannot be seen, so it may be any of them, or none",
            reach(self._views),
        )
        made = by_links(made, self._views, node)
        return self._confirmed(made, ("unseen", node.id), self._now)
