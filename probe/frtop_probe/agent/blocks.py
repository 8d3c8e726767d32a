"""What a rank issued, told without its ops: sums over blocks of them, in every exact group.

Every op of a rank comes by here, so it is read in bulk and what it counts for is looked up
by its signature. An op whose reduce op has not been decoded yet is waited for, a while.
"""

from __future__ import annotations

from typing import Final

from frtop_probe import wire
from frtop_probe.agent.ringview import RingView
from frtop_probe.agent.runs import Run, told
from frtop_probe.consistency.checksums import WEIGHTS, signature_digest, splits_digest
from frtop_probe.consistency.signatures import SPLIT
from frtop_probe.ring import bulk_read
from frtop_probe.ring.layout import StatusCell
from frtop_probe.ring.rank_ranges import unfold

GRACE_NS: Final = 2_000_000_000
"""After this an op is taken as it is: what is not known of it by then never will be."""
MOST_TOLD: Final = 48
"""Messages in a tick. Groups that find no room are told in larger blocks a tick later."""
_TORN: Final = 4
"""Ticks for which a slot may be unwritten: threads may be stopped in the middle of it."""

_Meaning = tuple[Run | None, int, int]
"""Where an op belongs (None: nowhere), what it counts for, and what its pairs do."""
_SKIPPED: Final[_Meaning] = (None, 0, 0)
_UNKNOWN: Final = -1


class Blocks:
    """Reads one ring; belongs to one rank."""

    def __init__(self, view: RingView) -> None:
        self._view = view
        self._ring = view.ring
        self._next = 1
        self._torn = 0
        self._runs: dict[int, Run] = {}
        self._known: dict[tuple[int, int], _Meaning] = {}
        self._hopeless: dict[tuple[int, int], _Meaning] = {}
        """Of those that nobody waits for any more: some others are still to become known."""

    def fresh(self, now_ns: int) -> tuple[wire.BlockSums, ...]:
        """Blocks of what was issued since the last call, as far as it is whole."""
        self._read(now_ns)
        made: list[wire.BlockSums] = []
        for run in list(self._runs.values()):
            if not run.waiting:
                continue
            if len(made) >= MOST_TOLD:
                break
            blocks = run.cut()
            if self._exact(run):
                made += told(run.group, blocks)
            self._runs[run.group] = self._runs.pop(run.group)  # the others come first next time
        return tuple(made)

    def last(self) -> tuple[wire.BlockSums, ...]:
        """The last blocks that were told, of every group."""
        runs = (run for run in self._runs.values() if self._exact(run))
        return tuple(one for run in runs for one in told(run.group, run.kept))

    def _read(self, now_ns: int) -> None:
        ring = self._ring
        head = ring.cell(StatusCell.HEAD)
        expected = max(self._next, head - ring.shape.slots + 1)
        overtaken = head - ring.shape.slots // 2  # to wait for these is to lose them
        known, weights, count = self._known, WEIGHTS, len(WEIGHTS)
        rows = bulk_read.words(ring, expected, head)
        for tail, issued_ns, number, what, state, begin in rows:
            if tail != expected or begin != expected:
                if tail < expected and not self._given_up(expected):
                    break
                expected += 1
                continue
            meaning = known.get((what, state))
            if meaning is None:
                late = expected < overtaken or now_ns - issued_ns > GRACE_NS
                meaning = self._unfamiliar(what, state, number, late=late)
                if meaning is None:
                    break
            run, counts, pairs = meaning
            if run is not None:
                if counts == _UNKNOWN:
                    run.skip(number)
                elif number == run.end and not pairs:
                    run.append(counts * weights[number % count])
                    run.end = number + 1
                else:
                    run.take(number, counts * weights[number % count], pairs)
            expected += 1
        self._next = expected

    def _unfamiliar(self, what: int, state: int, number: int, *, late: bool) -> _Meaning | None:
        """What an op counts for; None while it is still waited for."""
        if late and (what, state) in self._hopeless:
            return self._hopeless[what, state]
        meaning = self._meaning(what, state, number)
        if meaning[1] == _UNKNOWN:
            if not late:
                return None
            if meaning[0] is not None:
                self._hopeless[what, state] = meaning
        return meaning

    def _given_up(self, sequence: int) -> bool:
        """Whether a slot that nobody has written is not waited for any more."""
        self._torn = self._torn + 1 if sequence == self._next else 1
        if self._torn <= _TORN:
            return False
        self._torn = 0
        return True

    def _meaning(self, what: int, state: int, number: int) -> _Meaning:
        """What an op counts for, as far as it is known by now."""
        group_id, signature_id = bulk_read.pair_of(what)
        if not bulk_read.is_collective(state) or not group_id:
            self._known[what, state] = _SKIPPED
            return _SKIPPED
        group = self._view.group(group_id)
        if group is None:
            return None, _UNKNOWN, 0
        run = self._runs.get(group_id)
        if run is None:
            run = self._runs[group_id] = Run(group_id, number)
        signature = self._view.signature(signature_id, bulk_read.reduce_of(state))
        if signature is None:
            return run, _UNKNOWN, 0
        counts = signature_digest(signature, group.backend)
        if counts is None:
            return run, _UNKNOWN, 0
        meaning = run, counts, self._pairs(signature, group)
        self._known[what, state] = meaning
        return meaning

    def _pairs(self, signature: wire.Signature, group: wire.Group) -> int:
        """What an op's splits count for: only they need the members, of which may be thousands."""
        if signature.kind not in SPLIT:
            return 0
        try:
            members = unfold(group.ranks)
        except ValueError:
            members = ()
        rank = self._ring.cell(StatusCell.RANK)
        place = members.index(rank) if rank in members else -1
        return splits_digest(signature, place, len(members))

    def _exact(self, run: Run) -> bool:
        entry = self._ring.groups.get(run.group)
        if entry is not run.entry:
            run.entry = entry
            group = self._view.group(run.group)
            run.exact = group is not None and group.exact
        return run.exact
