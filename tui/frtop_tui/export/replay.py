"""Black boxes played back: what the judge would have said then, had somebody been there.

Every host's clock is put on one timeline, that of the wall, by the anchor in its box. On
it the moment before the first bad death is judged, with the looks that led to it, and then
the end: the judge remembers the one when it tells of the other.

An agent hears of a rank's exception after it was raised, when the op that the rank had
waited in has failed already: states are taken back to the moment before that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from operator import itemgetter
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.judged import Frame
from frtop_tui.export.histories import ops_of
from frtop_tui.job.state import JobState

MOST_MOMENTS: Final = 16
SECOND_NS: Final = 1_000_000_000
AGREE_NS: Final = 2_500_000_000
"""Two judgements so far apart confirm each other."""
FAILS_NS: Final = 1_000_000_000
"""An op fails up to so long before its rank raises, or is heard to have raised."""
JUDGED_OPS: Final = 64
"""The newest ops of a rank that died; a disagreement that killed it is among them."""


def play(boxes: Mapping[str, wire.BlackBox]) -> Frame:
    """Judges the boxes of one job, by host."""
    return _Replay(boxes).play()


class _Replay:
    def __init__(self, boxes: Mapping[str, wire.BlackBox]) -> None:
        self._boxes = boxes
        self._state = JobState()
        self._engine = Engine()

    def play(self) -> Frame:
        first = [_first_bad(box) for box in self._boxes.values() if box.before is not None]
        looks = [
            (at(box, answer), name, _telling(box, answer))
            for name, box in self._boxes.items()
            for answer in box.snapshots
        ]
        looks.sort(key=itemgetter(0))
        if first:
            until = min(first)
            early = [look for look in looks if look[0] <= until]
            looks = looks[len(early) :]
            self._up_to(until, early)
        end = max(at(box, box.after) for box in self._boxes.values())
        for name, box in self._boxes.items():
            self._state.apply(name, structs.replace(box.after, full=True), at(box, box.after))
        for _, name, answer in looks:
            self._state.apply_snapshots(name, answer)
        self._open_histories(end)
        self._judge(end - AGREE_NS)
        return self._judge(end)

    def _up_to(self, until: int, looks: list[tuple[int, str, wire.SnapshotResponse]]) -> None:
        """Judges the moment before the first bad death, led to by what was seen till then.

        Hosts look at moments of their own: those of one second are judged together.
        """
        seconds = {moment // SECOND_NS: moment for moment, _, _ in looks}
        seen = sorted(seconds.values())
        left = deque(looks)
        states = {name: _rewound(box, until - offset(box)) for name, box in self._boxes.items()}
        for moment in sorted({*seen, until - AGREE_NS, until}):
            self._all_as_of(moment, states)
            while left and left[0][0] <= moment:
                _, name, answer = left.popleft()
                self._state.apply_snapshots(name, answer)
            if moment >= until - AGREE_NS or moment in seen[-MOST_MOMENTS:]:
                self._judge(moment)

    def _all_as_of(self, moment: int, states: Mapping[str, wire.Update]) -> None:
        for name, box in self._boxes.items():
            self._state.apply(name, _as_of(states[name], moment - offset(box)), moment)

    def _open_histories(self, end: int) -> None:
        """Gives ranks that nobody had looked at the last ops that their rings held."""
        views = self._state.frame(end, end).ranks.values()
        seen = {(v.host, v.key) for v in views if v.snapshot is not None and v.snapshot.ops}
        for name, box in self._boxes.items():
            looks = tuple(
                wire.Snapshot(
                    answer.key, box.after.monotonic_ns, ops=ops_of(newest(answer.history))
                )
                for answer in box.histories
                if (name, answer.key) not in seen
            )
            self._state.apply_snapshots(name, wire.SnapshotResponse(0, name, looks))

    def _judge(self, moment: int) -> Frame:
        return self._engine.judge(self._state.frame(moment, moment)).frame


def offset(box: wire.BlackBox) -> int:
    """Added to the times of the box's host it gives the wall's."""
    return box.wall_ns - box.monotonic_ns


def at(box: wire.BlackBox, said: wire.Update | wire.SnapshotResponse) -> int:
    """When that was, by the wall."""
    when = said.monotonic_ns
    if not when and isinstance(said, wire.SnapshotResponse):
        when = max((look.at_ns for look in said.snapshots), default=0)
    return when + offset(box)


def _first_bad(box: wire.BlackBox) -> int:
    """When the first rank of a host ended badly, or raised what was to end it, by the wall."""
    assert box.before is not None
    raised = (rank.exception for rank in box.before.ranks)
    times = (one.at_ns for one in raised if one is not None and one.main)
    sane = [at_ns for at_ns in times if 0 < at_ns < box.before.monotonic_ns]
    return min([*sane, box.before.monotonic_ns]) + offset(box)


def _rewound(box: wire.BlackBox, moment_ns: int) -> wire.Update:
    """The host's state before the first bad death as it was at `moment_ns` of its clock."""
    update = box.before if box.before is not None else box.after
    histories = {answer.key: answer.history for answer in box.histories}
    ranks = tuple(
        structs.replace(
            rank, exception=None, pending=_pending(rank, histories.get(rank.key), moment_ns)
        )
        for rank in update.ranks
    )
    return structs.replace(update, ranks=ranks)


def _pending(
    rank: wire.RankUpdate, history: wire.History | None, moment_ns: int
) -> tuple[wire.Op, ...]:
    """The ops that a rank had not completed then, as far as its history tells."""
    known = {
        front.last.sequence: front.last for front in rank.group_progress if front.last is not None
    }
    ops = {op.sequence: op for op in (ops_of(newest(history)) if history is not None else ())}
    open_then = {op.sequence: op for op in rank.pending or ()}
    for op in {**ops, **known}.values():
        failed_then = op.done_ns < 0 and -op.done_ns > moment_ns - FAILS_NS
        if op.issued_ns <= moment_ns and (op.done_ns > moment_ns or failed_then):
            open_then[op.sequence] = structs.replace(op, done_ns=0)
    return tuple(open_then[sequence] for sequence in sorted(open_then))


def newest(history: wire.History) -> wire.History:
    """The part of a history that is judged."""
    return structs.replace(history, rows=history.rows[-JUDGED_OPS:])


def _as_of(update: wire.Update, moment_ns: int) -> wire.Update:
    """The same state at another moment of its host: beats go on as they did."""
    shift = moment_ns - update.monotonic_ns
    ranks = tuple(_beating(rank, shift) for rank in update.ranks)
    return structs.replace(update, monotonic_ns=moment_ns, ranks=ranks, full=True)


def _beating(rank: wire.RankUpdate, shift: int) -> wire.RankUpdate:
    if rank.status is None or not rank.status.beat_ns:
        return rank
    present = structs.replace(rank.status, beat_ns=rank.status.beat_ns + shift)
    return structs.replace(rank, status=present)


def _telling(box: wire.BlackBox, answer: wire.SnapshotResponse) -> wire.SnapshotResponse:
    """Those looks that still hold: their rank has issued nothing since."""
    known = (box.before if box.before is not None else box.after).ranks
    acted = {rank.key: max((f.issued_ns for f in rank.group_progress), default=0) for rank in known}
    looks = tuple(look for look in answer.snapshots if look.at_ns >= acted.get(look.key, 0))
    return structs.replace(answer, snapshots=looks)
