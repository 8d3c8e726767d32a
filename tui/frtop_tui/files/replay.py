"""Replays black boxes: judges the moment before the first bad death, then the end.

The anchor in each box puts the host's clock on one timeline, that of the wall clock. One engine
judges both moments, so the last verdict includes what led to the end.

An agent sees an exception after the rank's op has failed. So the state before the first bad
death is rewound to the moment before the exception.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from operator import itemgetter
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.histories import ops_of
from frtop_tui.job.state import JobState

MAX_JUDGEMENTS: Final = 16
SECOND_NS: Final = 1_000_000_000
AGREE_NS: Final = 2_500_000_000
"""Time between two judgements that lets the second confirm the first."""
FAILS_NS: Final = 1_000_000_000
"""Longest time from an op's failure to the exception, or until the agent notices."""
JUDGED_OPS: Final = 64
"""Number of newest ops to judge for a rank that died: they include the mismatch that killed it."""


def replay(boxes: Mapping[str, wire.BlackBox]) -> Frame:
    """Judges the boxes of one job, given by host."""
    return _Replay(boxes).play()


class _Replay:
    def __init__(self, boxes: Mapping[str, wire.BlackBox]) -> None:
        self._boxes = boxes
        self._state = JobState()
        self._engine = Engine(explain=True)

    def play(self) -> Frame:
        first = [_first_bad(box) for box in self._boxes.values() if box.before is not None]
        responses = [
            (wall_time(box, response), name, _still_valid(box, response))
            for name, box in self._boxes.items()
            for response in box.snapshots
        ]
        responses.sort(key=itemgetter(0))
        if first:
            death_ns = min(first)
            early = [response for response in responses if response[0] <= death_ns]
            responses = responses[len(early) :]
            self._judge_until(death_ns, early)
        end = max(wall_time(box, box.after) for box in self._boxes.values())
        for name, box in self._boxes.items():
            self._state.apply(
                name, structs.replace(box.after, full=True), wall_time(box, box.after)
            )
            if box.gauges is not None:
                self._state.apply_gauge_history(name, box.gauges)
            if box.minutes is not None:
                self._state.apply_gauge_minutes(name, box.minutes)
        for _, name, response in responses:
            self._state.apply_snapshots(name, response)
        self._apply_histories(end)
        self._judge(end - AGREE_NS)
        return self._judge(end)

    def _judge_until(
        self, death_ns: int, responses: list[tuple[int, str, wire.SnapshotResponse]]
    ) -> None:
        """Judges the moments of snapshots up to the first bad death at `death_ns`.

        Hosts take snapshots at different times: those of one second are judged together.
        """
        seconds = {at_ns // SECOND_NS: at_ns for at_ns, _, _ in responses}
        seen = sorted(seconds.values())
        left = deque(responses)
        states = {
            name: _rewound(box, death_ns - wall_offset(box)) for name, box in self._boxes.items()
        }
        for at_ns in sorted({*seen, death_ns - AGREE_NS, death_ns}):
            self._apply_all(at_ns, states)
            while left and left[0][0] <= at_ns:
                _, name, response = left.popleft()
                self._state.apply_snapshots(name, response)
            if at_ns >= death_ns - AGREE_NS or at_ns in seen[-MAX_JUDGEMENTS:]:
                self._judge(at_ns)

    def _apply_all(self, at_ns: int, states: Mapping[str, wire.Update]) -> None:
        for name, box in self._boxes.items():
            self._state.apply(name, _as_of(states[name], at_ns - wall_offset(box)), at_ns)

    def _apply_histories(self, end: int) -> None:
        """Gives ranks without a snapshot the last ops from their histories."""
        views = self._state.frame(end, end).ranks.values()
        seen = {(v.host, v.key) for v in views if v.snapshot is not None and v.snapshot.ops}
        for name, box in self._boxes.items():
            snapshots = tuple(
                wire.Snapshot(
                    response.key, box.after.monotonic_ns, ops=ops_of(response.history, JUDGED_OPS)
                )
                for response in box.histories
                if (name, response.key) not in seen
            )
            self._state.apply_snapshots(name, wire.SnapshotResponse(0, name, snapshots))

    def _judge(self, at_ns: int) -> Frame:
        return self._engine.judge(self._state.frame(at_ns, at_ns)).frame


def wall_offset(box: wire.BlackBox) -> int:
    """Times of the box's host plus this are wall-clock times, in ns."""
    return box.wall_ns - box.monotonic_ns


def wall_time(box: wire.BlackBox, message: wire.Update | wire.SnapshotResponse) -> int:
    when = message.monotonic_ns
    if not when and isinstance(message, wire.SnapshotResponse):
        when = max((snapshot.at_ns for snapshot in message.snapshots), default=0)
    return when + wall_offset(box)


def _first_bad(box: wire.BlackBox) -> int:
    """Wall-clock time at which the host's first rank ended badly or raised its exception."""
    assert box.before is not None
    exceptions = (rank.exception for rank in box.before.ranks)
    times = (one.at_ns for one in exceptions if one is not None and one.main)
    valid = [at_ns for at_ns in times if 0 < at_ns < box.before.monotonic_ns]
    return min([*valid, box.before.monotonic_ns]) + wall_offset(box)


def _rewound(box: wire.BlackBox, time_ns: int) -> wire.Update:
    """The host's state before the first bad death, rewound to `time_ns` of its clock."""
    update = box.before if box.before is not None else box.after
    histories = {response.key: response.history for response in box.histories}
    ranks = tuple(
        structs.replace(
            rank, exception=None, pending=_pending(rank, histories.get(rank.key), time_ns)
        )
        for rank in update.ranks
    )
    return structs.replace(update, ranks=ranks)


def _pending(
    rank: wire.RankUpdate, history: wire.History | None, time_ns: int
) -> tuple[wire.Op, ...]:
    """The ops that were pending at `time_ns`, according to the history."""
    lasts = [progress.last for progress in rank.group_progress]
    known = {last.sequence: last for last in lasts if last is not None}
    ops = {op.sequence: op for op in (ops_of(history, JUDGED_OPS) if history is not None else ())}
    pending = {op.sequence: op for op in rank.pending or ()}
    for op in {**ops, **known}.values():
        failed_then = op.done_ns < 0 and -op.done_ns > time_ns - FAILS_NS
        if op.issued_ns <= time_ns and (op.done_ns > time_ns or failed_then):
            pending[op.sequence] = structs.replace(op, done_ns=0)
    return tuple(pending[sequence] for sequence in sorted(pending))


def _as_of(update: wire.Update, time_ns: int) -> wire.Update:
    """The same state at another time of its host, with heartbeats moved to that time."""
    shift = time_ns - update.monotonic_ns
    ranks = tuple(_with_heartbeat(rank, shift) for rank in update.ranks)
    return structs.replace(update, monotonic_ns=time_ns, ranks=ranks, full=True)


def _with_heartbeat(rank: wire.RankUpdate, shift: int) -> wire.RankUpdate:
    if rank.status is None or not rank.status.heartbeat_ns:
        return rank
    status = structs.replace(rank.status, heartbeat_ns=rank.status.heartbeat_ns + shift)
    return structs.replace(rank, status=status)


def _still_valid(box: wire.BlackBox, response: wire.SnapshotResponse) -> wire.SnapshotResponse:
    """Only the snapshots whose rank has issued no op since."""
    known = (box.before if box.before is not None else box.after).ranks
    issued = {
        rank.key: max((group.issued_ns for group in rank.group_progress), default=0)
        for rank in known
    }
    valid = tuple(one for one in response.snapshots if one.at_ns >= issued.get(one.key, 0))
    return structs.replace(response, snapshots=valid)
