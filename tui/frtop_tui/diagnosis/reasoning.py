"""One frame's case: deaths, disagreements and waits brought together into verdicts.

The order is that of causes. A disagreement explains the deaths and waits that it leads
to; a death explains the waits for the dead; what is left is followed to those who have
not entered.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from frtop_tui.diagnosis import obituary, uncounted
from frtop_tui.diagnosis import verdict as words
from frtop_tui.diagnosis.absence import absence_of, never_joined
from frtop_tui.diagnosis.behind import behind_of
from frtop_tui.diagnosis.blame import Blame, Culprits, blame
from frtop_tui.diagnosis.certainty import (
    CERTAIN,
    belong_to_heard_hosts,
    doubt,
    members_known,
    reach,
)
from frtop_tui.diagnosis.coming import is_fresh
from frtop_tui.diagnosis.deaths import Death
from frtop_tui.diagnosis.devices import behind
from frtop_tui.diagnosis.inquiry import SUSPECTS_PER_POINT
from frtop_tui.diagnosis.judged import Verdict
from frtop_tui.diagnosis.links import by_links
from frtop_tui.diagnosis.meeting import met_in_vain
from frtop_tui.diagnosis.memory import Memory, is_second_look_due, look_stamp
from frtop_tui.diagnosis.moments import EARLY_NS
from frtop_tui.diagnosis.point import crowd
from frtop_tui.diagnosis.points import Point, Points, front_number, in_order, local_number
from frtop_tui.diagnosis.progress import progress_of
from frtop_tui.diagnosis.ring import cycle, is_early
from frtop_tui.diagnosis.signatures import NEAR, Disagreement
from frtop_tui.diagnosis.survey import Survey
from frtop_tui.diagnosis.tempo import may_come_back
from frtop_tui.diagnosis.waiting import patience_ns
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
        self, frame: ObservedFrame, survey: Survey, points: Points, memory: Memory
    ) -> None:
        """Args: survey, points: as of `frame`."""
        self.frame = frame
        self._now = frame.now_ns
        self._survey, self._views = survey, survey.views
        self._suspicions = memory.suspicions
        self._taken_back = memory.taken_back
        self._deaths = survey.deaths
        self.points = points
        self._ripe = points.ripe(frame.now_ns)
        self._found = memory.found.keep(survey.told.disagreements(frame.ranks))
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

    def suspicious(self) -> list[Point]:
        """Points worth a look, some before their wait is out of the ordinary.

        So there is something to compare with when it is.
        """
        ripe = set(self._ripe)
        early = [point for point in self.points.that("early", self._now) if point not in ripe]
        early = sorted(in_order(early), key=lambda point: point.since_ns)[:4]
        for point in early:
            self.points.look_into(point, self._now)
        return [*self._ripe, *early]

    def uneven(self) -> list[int]:
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
            points = [
                point
                for point in self.points.all.values()
                if one.leads_to(point.group, point.number)
            ]
            self._explained |= {id(point) for point in points}
            victims = {rank for point in points for rank in point.waiting}
            fatal = {death.rank for death in self._caused_by(one)}
            victims |= fatal
            verdict = words.mismatch(one, self.frame, victims, fatal=bool(fatal))
            # Agents forget ranks some time after they have ended.
            known = [self._views.get(party.ranks[0]) for party in one.parties]
            if any(view.dumped for view in known if view is not None):
                verdict = replace(verdict, confidence="suspect")
            made.append(verdict)
        return made

    def _caused_by(self, found: Disagreement) -> list[Death]:
        """Deaths that a disagreement leads to: everything but causes of their own."""
        members = {rank for party in found.parties for rank in party.ranks}
        deaths = self._deaths.every
        if all(d.rank not in members or self._has_passed(d.rank, found) for d in deaths):
            return []
        return [death for death in deaths if death.nature != "own"]

    def _has_passed(self, rank: int, found: Disagreement) -> bool:
        """Whether a rank had long completed the op in disagreement: it died of another thing."""
        view, last = self._views[rank], found.number + NEAR
        if not found.parties[0].op.tracked or front_number(view, found.group) <= last:
            return False
        mine = local_number(view, found.group)
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
        points = self.points.at({*every, *(d.rank for d in followers)}, self._now)
        self._explained |= {id(point) for point in points}
        failed = any(death.failed for death in first)
        if not points and not followers and not failed and self._nobody_needs(every):
            return []
        behind = {death.rank for death in followers}
        self._unread = self._may_be_victims(first)
        if self._unread:
            return [obituary.aborted(self.frame, first, behind)]
        made = []
        for index, group in enumerate(roots):
            mine = points if index == 0 else []
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
        behind = behind_of(self.frame, victims)
        gone = [rank for rank in sorted(behind) if self._views[rank].state == "done"]
        if gone:
            # Some broke off, some still wait: one departure, one verdict.
            points = self.points.at(gone, self._now)
            self._explained |= {id(point) for point in points}
            victims |= {rank for point in points for rank in point.waiting}
            point = points[0] if points else None
            missed = behind[gone[0]]
            return [obituary.exited(self.frame, gone, victims, point=point, missed=missed)]
        living = [rank for rank in sorted(behind) if self._views[rank].exit_info is None]
        if living and all(death.nature == "network" for death in broken):
            progress = progress_of(self._views[living[0]], self._now)
            # Those that still wait for it, and for nobody else, say no more than the dead.
            points = [p for p in self.points.at(living, self._now) if {*p.sinks} <= {*living}]
            self._explained |= {id(point) for point in points}
            waiting = {rank for point in points for rank in point.waiting}
            left = obituary.left_group(self.frame, living, broken, waiting, progress)
            return [self._confirmed(left, ("left", tuple(living)), self._now)]
        if behind and any(death.nature == "timeout" for death in broken):
            late = sorted(behind)
            if any(rank in point.sinks for point in self._ripe for rank in late):
                return []  # others still wait for it: there is more to be said
            return [obituary.timed_out(self.frame, late, broken, behind[late[0]])]
        verdict = obituary.broken(self.frame, broken)
        return [self._confirmed(verdict, ("broken", len(broken)), self._now)]

    def _left(self) -> list[Verdict]:
        """Ranks that ended cleanly and are waited for."""
        left = self._survey.postures["done"]
        if not left:
            return []
        made: dict[tuple[int, ...], tuple[Point, set[int]]] = {}
        for point in self.points.at(left, self._now):
            gone = tuple(rank for rank in point.gone if self._views[rank].state == "done")
            settled = self._now - point.since_ns >= SKEW_NS
            # A receive that nobody sits in may never complete, and means nothing.
            left_behind = point.op.p2p and not any(wait.sure for wait in point.waits)
            if not gone or not settled or left_behind or id(point) in self._explained:
                continue
            self._explained.add(id(point))
            _, victims = made.setdefault(gone, (point, set()))
            victims |= set(point.waiting)
        return [
            obituary.exited(self.frame, gone, victims, point=point)
            for gone, (point, victims) in made.items()
        ]

    def _circles(self) -> list[Verdict]:
        made = []
        # However unusual: ranks that wait for each other will not stop doing so.
        settled = self.points.settled(self._now)
        open_points = [point for point in settled if id(point) not in self._explained]
        for ring in self.points.circles(open_points):
            self._explained |= {id(point) for point in ring}
            key = ("cycle", frozenset(point.id for point in ring))
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
        for point in [*self.points.ends(self._ripe), *early]:
            if id(point) in self._explained or point.gone:
                continue
            if len(made) >= MOST_ROOTS:
                break
            fresh = [rank for rank in point.sinks if rank not in assigned]
            if point in early:
                fresh = [rank for rank in fresh if self._views[rank].state == "stopped"]
                if not fresh:
                    continue
            if fresh:
                assigned |= set(fresh)
                for verdict in self._blame(point, fresh):
                    made[verdict.culprits] = verdict
            elif point.entered_by_all and not is_fresh(self._views, point, self._now):
                verdict = self._stuck(point)
                made[verdict.headline] = verdict
            elif point.unseen and not point.sinks and not point.onward:
                verdict = self._unseen(point)
                made[verdict.headline] = verdict
        return list(made.values())

    def _kept_by_stopped(self) -> list[Point]:
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
            point
            for point in self.points.at(stopped, self._now)
            if point not in self._ripe and self._now - point.since_ns >= SKEW_NS
        ]

    def _blame(self, point: Point, sinks: Sequence[int]) -> list[Verdict]:
        """One verdict for each cause."""
        found = blame(self._views, sinks, self._now)
        made = []
        for culprits in found.culprits:
            others = self.points.awaiting(culprits.ranks, self._ripe)
            points = [point, *(other for other in others if other is not point)]
            waiting = self.points.crowd(points)
            verdict = words.not_entered(self.frame, points, waiting, culprits, found)
            if not any(map(members_known, points)):
                made.append(words.doubted(verdict, point))
                continue
            made.append(self._confirm_absent(verdict, point, culprits.ranks))
        return made

    def _confirm_absent(self, verdict: Verdict, point: Point, ranks: Sequence[int]) -> Verdict:
        key = ("not_entered", tuple(ranks), point.id)
        views = [self._views[rank] for rank in ranks[:SUSPECTS_PER_POINT]]
        stamp = look_stamp(views)
        if verdict.why.cause in CERTAIN:
            stamp = self._now
        confirmed = self._confirmed(verdict, key, stamp)
        if verdict.progress == "unknown" and is_second_look_due(views):
            return verdict  # that it is there is sure; whether it gets anywhere soon will be
        stalled = verdict.progress == "none" and verdict.why.cause not in CERTAIN
        slow = any(may_come_back(view, self._now) for view in views)
        slow = slow or self._taken_back.misled(point, self._now)
        return verdict if stalled and slow else confirmed

    def _confirmed(self, verdict: Verdict, key: tuple[object, ...], stamp: int | None) -> Verdict:
        if stamp is not None and self._suspicions.confirms(key, stamp, self._now):
            return replace(verdict, confidence="confirmed")
        return verdict

    def _stuck(self, point: Point) -> Verdict:
        odd = uncounted.parted(self.points.all.values(), point)
        if odd is not None:
            made = words.mismatch(odd.found, self.frame, set(point.members), fatal=False)
            made = replace(made, confidence="suspect", missing=(odd.missing,))
            return self._confirmed(made, ("uncounted", point.id, made.parties), self._now)
        late = behind(self._views, point)
        if late is not None:
            progress = progress_of(self._views[late.ranks[0]], self._now)[0]
            made = words.device_behind(self.frame, point, late, progress)
            key = ("device", point.id, late.ranks)
            return self._confirmed(made, key, look_stamp([self._views[r] for r in late.ranks]))
        halted = [
            view
            for rank in point.members
            if (view := self._views.get(rank)) is not None and view.state == "stopped"
        ]
        culprit = halted[0] if len(halted) == 1 else None
        absence = absence_of(culprit, self._now) if culprit is not None else None
        head = ""
        if culprit is None and (meeting := met_in_vain(self._views, point)):
            head, absence = meeting
        made = words.stuck(self.frame, point, culprit, absence, head)
        if culprit is None and (why_not := doubt(self._views, point)):
            made = words.undecided(self.frame, point, *why_not)
        if culprit is None:
            made = by_links(made, self._views, point)
        return self._confirmed(made, ("stuck", point.id, made.culprits), self._now)

    def _unseen(self, point: Point) -> Verdict:
        never = [rank for rank in point.unseen if rank not in self._views]
        if point.op.pseudo and never:
            seen = f"{folded(never)} never heard of"
            culprits = Culprits(tuple(never), never_joined(never), ("unknown", seen))
            made = words.not_entered(
                self.frame, [point], crowd(point.waiting), culprits, Blame((culprits,))
            )
            if not members_known(point):
                return words.doubted(made, point)
            if not belong_to_heard_hosts(self._views, never):
                return made
            return self._confirmed(made, ("never", point.id, tuple(never)), self._now)
        made = words.undecided(
            self.frame,
            point,
            f"{folded(point.unseen)} cannot be seen, so it may be any of them, or none",
            reach(self._views),
        )
        made = by_links(made, self._views, point)
        return self._confirmed(made, ("unseen", point.id), self._now)
