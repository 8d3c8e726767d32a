"""Ranks without a recorder are followed while somebody asks, and one does not hold up others."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import signal
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.ring_builder import RingBuilder
from agent.unprepared_fakes import FakeReads, candidate, job, start_ticks
from frtop_probe.agent import rank_tracker
from frtop_probe.agent.rank_tracker import LASTING_S, RankTracker, ShownRanks
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.unprepared import watch as unprepared_watch
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.agent.unprepared.watch import MAX_CHILDREN, UnpreparedPool, UnpreparedWatch
from frtop_probe.proc.line_child import CHILD_ENDED, NO_CHILD
from frtop_probe.ring import layout
from frtop_probe.unprepared.cpython import FREE_THREADED
from frtop_probe.unprepared.discovery.facts import SCAN_FAILED, Candidate, Discovery, LeftAlone
from frtop_probe.unprepared.worker import SCAN_TOOK_TOO_LONG, TOOK_TOO_LONG, Look
from waiting import DEADLINE_S, wait_for_async

Sleepers = Callable[[int], list[int]]


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    """Starts processes that stand for ranks; killed ones are reaped at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(count: int) -> list[int]:
        fresh = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
        started.extend(fresh)
        return [process.pid for process in fresh]

    yield start
    for process in started:
        process.kill()
        process.wait()


class Watch:
    """A watch on fake workers, and the tracker that it feeds."""

    def __init__(self, folder: Path) -> None:
        self.reads = FakeReads()
        self.tracker = RankTracker([folder])
        self.asked: float | None = -math.inf  # None: just now
        self.shown = self.tracker.shown
        self.shown.note(None, ())  # all ranks
        pool = UnpreparedPool(self.reads.worker)
        self.watch = UnpreparedWatch(self.tracker, self._last_asked, pool, boxes="/boxes")
        self.task = asyncio.create_task(self.watch.run())

    def _last_asked(self) -> float:
        return time.monotonic() if self.asked is None else self.asked

    def find(self, *ranks: int | Candidate) -> None:
        """What a search finds from now on: pids of ranks that nobody prepared, or candidates."""
        found = [
            candidate(one, rank=n) if isinstance(one, int) else one for n, one in enumerate(ranks)
        ]
        self.reads.discovery = Discovery((job(*found),))
        self.asked = None

    @property
    def ranks(self) -> list[int]:
        return [
            rank.pid for rank in self.tracker.ranks.values() if isinstance(rank, UnpreparedRank)
        ]

    @property
    def seen(self) -> set[int]:
        """Pids of the ranks whose c10d state was read."""
        return {r.pid for r in self.tracker.ranks.values() if r.full().group_progress}


def prepared(pid: int, **fields: Any) -> Candidate:
    """A rank whose environment starts the recorder."""
    folder = os.environ.get("FRTOP_DIR", "")
    return replace(candidate(pid, prepared=True, inner_pid=pid, ring_folder=folder), **fields)


async def end(rank: UnpreparedRank | None) -> None:
    assert rank is not None
    os.kill(rank.pid, signal.SIGKILL)
    await wait_for_async(lambda: not rank.lives, "its end is noticed at once")


@pytest.fixture
async def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watch]:
    monkeypatch.setattr(unprepared_watch, "LOOK_S", 0.05)
    monkeypatch.setattr(unprepared_watch, "SLOW_S", 0.02)
    monkeypatch.setattr(unprepared_watch, "SCAN_S", 0.05)
    one = Watch(tmp_path)
    yield one
    one.task.cancel()
    await asyncio.gather(one.task, return_exceptions=True)
    assert one.reads.open == 0
    one.tracker.clear()


async def test_nothing_is_read_while_nobody_asks(watch: Watch, sleepers: Sleepers) -> None:
    watch.find(*sleepers(1))
    watch.asked = -math.inf
    await asyncio.sleep(0.4)
    assert (watch.reads.workers, watch.ranks) == ([], [])


async def test_ranks_are_forgotten_when_the_operator_leaves_and_found_again(
    watch: Watch, sleepers: Sleepers
) -> None:
    """A worker that was closed reads no more: the second time needs new ones."""
    pids = sleepers(2)
    watch.find(*pids)
    await wait_for_async(lambda: watch.seen == set(pids), "they are seen")
    watch.asked = -math.inf
    await wait_for_async(lambda: not watch.ranks, "they are forgotten")
    assert not watch.tracker.busy
    await wait_for_async(lambda: watch.reads.open == 0, "the children end")
    looks = len(watch.reads.looks)
    await asyncio.sleep(0.3)
    assert len(watch.reads.looks) == looks
    watch.asked = None
    await wait_for_async(lambda: watch.seen == set(pids), "they are seen again")


async def test_stuck_processes_do_not_starve_the_others(watch: Watch, sleepers: Sleepers) -> None:
    pids = sleepers(10)
    watch.reads.stuck = set(pids[:2])
    watch.find(*pids)
    await wait_for_async(lambda: watch.seen == set(pids[2:]), "the others are seen")
    again = watch.reads.looks.count(pids[-1])
    await wait_for_async(lambda: watch.reads.looks.count(pids[-1]) > again + 2, "and again")
    assert [watch.reads.looks.count(pid) for pid in pids[:2]] == [1, 1]  # they are not piled up
    assert len(watch.reads.workers) <= MAX_CHILDREN
    watch.reads.release.set()
    await wait_for_async(lambda: watch.seen == set(pids), "then these, too")
    await wait_for_async(lambda: watch.reads.open == 1, "one child is enough again")


async def test_a_round_ends_when_all_children_are_stuck(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprepared_watch, "ROUND_S", 0.2)
    pids = sleepers(8)
    watch.reads.stuck = set(pids)
    watch.find(*pids)
    await wait_for_async(lambda: len(watch.reads.looks) >= MAX_CHILDREN - 1, "looks")
    await asyncio.sleep(0.5)
    assert len(watch.reads.looks) == MAX_CHILDREN - 1
    watch.asked = -math.inf  # and it can still be left
    await wait_for_async(lambda: not watch.ranks, "they are forgotten")


async def test_what_did_not_return_or_cannot_change_is_not_read_again_soon(
    watch: Watch, sleepers: Sleepers
) -> None:
    stuck, without, other = sleepers(3)
    watch.reads.reasons[stuck] = TOOK_TOO_LONG
    watch.reads.c10d_reasons[without] = FREE_THREADED
    watch.find(stuck, without, other)
    await wait_for_async(lambda: watch.reads.looks.count(other) > 5, "looks at the other")
    assert [watch.reads.looks.count(pid) for pid in (stuck, without)] == [1, 1]
    (rank,) = (one for one in watch.tracker.ranks.values() if one.pid == stuck)
    assert rank.full().notes == (TOOK_TOO_LONG,)


@pytest.mark.parametrize(
    "reason", [SCAN_TOOK_TOO_LONG, CHILD_ENDED, NO_CHILD, f"{SCAN_FAILED}: KeyError('odd')"]
)
async def test_a_search_that_failed_is_not_repeated_soon(watch: Watch, reason: str) -> None:
    """Each try may cost a child, and with it the addresses of all ranks."""
    watch.reads.discovery = Discovery(reasons=(reason,))
    watch.asked = None
    await wait_for_async(lambda: watch.tracker.notes == (reason,), "a note")
    await asyncio.sleep(0.4)
    assert len(watch.reads.scans) == 1


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, True),
        ({"prepared": False}, True),
        ({"ring_folder": "/elsewhere"}, False),
        ({"inner_pid": 7}, False),
    ],
)
async def test_a_rank_in_which_the_recorder_is_off_is_seen_from_outside(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any], shown: bool,
) -> None:  # fmt: skip
    """Its environment starts the recorder; it has none, and is too old to be about to make one."""
    monkeypatch.setenv("FRTOP_DIR", "/here")
    pid, plain = sleepers(2)
    monkeypatch.setattr(unprepared_watch, "NO_RING_S", -1.0)
    watch.find(prepared(pid, **fields), plain)
    await wait_for_async(lambda: plain in watch.seen, "the other one is seen")
    assert watch.ranks == ([pid, plain] if shown else [plain])


async def test_a_rank_whose_recorder_is_of_another_build_is_seen_and_says_so(
    watch: Watch, sleepers: Sleepers, tmp_path: Path
) -> None:
    (pid,) = sleepers(1)
    made = prepared(pid)
    builder = RingBuilder(tmp_path, pid=pid, start_ticks=made.start_ticks)
    inode = Path("/proc/self/ns/pid").stat().st_ino
    struct.pack_into("=I", builder.map, len(layout.MAGIC), layout.VERSION + 1)
    builder.path.rename(tmp_path / f"{pid}-{made.start_ticks}-{inode}{layout.SUFFIX}")
    watch.tracker.tick(time.monotonic_ns())
    watch.find(made)
    await wait_for_async(lambda: pid in watch.seen, "it is seen")
    (rank,) = watch.tracker.ranks.values()
    assert rank.full().notes[-1] == rank_tracker.OTHER_BUILD
    assert any("frtop reads" in note for note in watch.tracker.notes)


@pytest.mark.parametrize("elsewhere", [{"ring_folder": "/elsewhere"}, {"inner_pid": 7}])
async def test_at_the_end_of_a_pipe_ranks_whose_rings_are_elsewhere_are_followed(
    watch: Watch, sleepers: Sleepers, elsewhere: dict[str, Any]
) -> None:
    """No other agent reads them for the operator there."""
    watch.tracker.guest = True
    (pid,) = sleepers(1)
    watch.reads.discovery = Discovery(
        (job(prepared(pid, **elsewhere)),), left_alone=(LeftAlone(7, "ann", 9, 2),)
    )
    watch.asked = None
    await wait_for_async(lambda: pid in watch.seen, "it is seen")
    (note,) = watch.tracker.notes
    assert note.startswith("2 ranks of user ann: not looked at; ")


async def test_ranks_with_rings_in_another_folder_are_named_with_the_way_to_them(
    watch: Watch, sleepers: Sleepers
) -> None:
    ranks = [prepared(pid, ring_folder="/dev/shm/site's") for pid in sleepers(2)]
    watch.reads.discovery = Discovery(tuple(map(job, ranks)))  # two jobs of one name
    watch.asked = None
    way = """FRTOP_DIR='/dev/shm/site'"'"'s' frtop"""
    expected = f"2 ranks of train.py: rings in /dev/shm/site's; {way}"
    await wait_for_async(functools.partial(_has_notes, watch, (expected,)), "the note")
    assert not watch.tracker.ranks


async def test_a_young_rank_may_still_make_its_ring(watch: Watch, sleepers: Sleepers) -> None:
    pid, plain = sleepers(2)
    watch.find(prepared(pid), plain)
    await wait_for_async(lambda: plain in watch.seen, "the other one is seen")
    assert watch.ranks == [plain]


async def test_a_rank_behind_the_last_one_that_fits_still_learns(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprepared_watch, "MAX_RANKS", 1)
    first, second = sleepers(2)
    watch.find(first)
    await wait_for_async(lambda: watch.seen == {first}, "the first one is seen")
    learned: list[int] = []
    monkeypatch.setattr(UnpreparedRank, "learn", lambda rank, *_: learned.append(rank.pid))
    watch.find(second, first)
    await wait_for_async(lambda: learned, "it is told what a later search found")


async def test_an_error_is_a_note_and_the_watch_goes_on(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprepared_watch, "RESTART_S", 0.2)
    first, second = sleepers(2)
    watch.find(first)
    await wait_for_async(lambda: watch.seen == {first}, "the first one is seen")
    watch.reads.scan_error = RuntimeError("odd")
    await wait_for_async(lambda: watch.tracker.notes, "a note")
    assert "odd" in watch.tracker.notes[0]
    looks = len(watch.reads.looks)
    await wait_for_async(lambda: len(watch.reads.looks) > looks, "looks meanwhile")
    watch.find(first, second)
    watch.reads.scan_error = None
    await wait_for_async(lambda: watch.seen == {first, second}, "it goes on")


async def test_a_rank_that_cannot_be_taken_in_does_not_hide_the_others(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprepared_watch, "COMPARE_S", 0.05)
    pids = sleepers(3)
    intact, intact_ring = UnpreparedRank.take, UnpreparedRank.take_ring

    def take(rank: UnpreparedRank, look: Look, at_ns: int, begun_ns: int = 0) -> None:
        if rank.pid == pids[0]:
            raise KeyError("odd state")
        intact(rank, look, at_ns, begun_ns)

    def take_ring(rank: UnpreparedRank, look: Look, at_ns: int, wall_offset_ns: int) -> None:
        if rank.pid == pids[1]:
            raise KeyError("odd ring")
        intact_ring(rank, look, at_ns, wall_offset_ns)

    monkeypatch.setattr(UnpreparedRank, "take", take)
    monkeypatch.setattr(UnpreparedRank, "take_ring", take_ring)
    watch.find(*pids)
    await wait_for_async(lambda: watch.seen == set(pids[1:]), "the others are seen")
    last = next(one for one in watch.tracker.ranks.values() if one.pid == pids[2])
    await wait_for_async(lambda: last.recent_ops(1)[0], "the ring of the last one")
    await wait_for_async(lambda: len(watch.tracker.notes) == 2, "both are noted")
    assert all("odd" in note for note in watch.tracker.notes)


async def test_notes_of_searches_replace_each_other(watch: Watch) -> None:
    """They have numbers in them, and all notes of an agent's life are kept otherwise."""
    watch.asked = None
    for count in range(1, 5):
        others = LeftAlone(7, "ann", 9, count)
        watch.reads.discovery = Discovery(left_alone=(others, LeftAlone(8, "ben", 9, 0)))
        expected = (others.note(),)
        await wait_for_async(functools.partial(_has_notes, watch, expected), "just this note")


async def test_a_search_that_found_no_rank_says_so(watch: Watch, sleepers: Sleepers) -> None:
    tracker = watch.tracker
    watch.reads.discovery = Discovery(reasons=(SCAN_FAILED,))
    watch.asked = None
    await wait_for_async(lambda: tracker.notes, "a failed search")
    assert not tracker.none_found
    watch.reads.discovery = Discovery()
    watch.watch._scan_at = 0.0  # it is not repeated soon
    await wait_for_async(lambda: tracker.none_found, "nothing is there")
    watch.find(*sleepers(1))
    await wait_for_async(lambda: not tracker.none_found, "a rank is there")
    (rank,) = tracker.ranks.values()
    assert isinstance(rank, UnpreparedRank)
    await end(rank)
    watch.reads.discovery = Discovery()
    await wait_for_async(lambda: tracker.none_found, "it has ended")
    (young,) = sleepers(1)
    watch.find(prepared(young))
    await wait_for_async(lambda: not tracker.none_found, "one will make its ring")
    watch.find(prepared(young, ring_folder="/elsewhere"))
    await wait_for_async(lambda: tracker.none_found, "it is another agent's")
    watch.asked = -math.inf
    await wait_for_async(lambda: not tracker.none_found, "nobody searches any more")


async def test_it_searches_until_the_first_looks_at_the_ranks_it_found_are_over(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a loaded host that takes longer than any limit of a command."""
    tracker, looked = watch.tracker, asyncio.Event()
    intact = watch.watch._pool.look
    first, *others = sleepers(3)

    async def look(pid: int) -> Look:
        await looked.wait()
        if pid != first:
            await asyncio.Event().wait()
        return await intact(pid)

    monkeypatch.setattr(watch.watch._pool, "look", look)
    watch.find(first)
    await wait_for_async(lambda: watch.ranks, "a rank is found")
    watch.find(first, *others)  # of jobs that have begun since: there may always be some
    await wait_for_async(lambda: len(watch.ranks) == 3, "the others are found")
    await asyncio.sleep(0.1)
    assert tracker.searching
    looked.set()
    await wait_for_async(lambda: not tracker.searching, "it was looked at")
    (known,) = (one for one in watch.watch._watched.values() if one.rank.pid == first)
    assert known.looks >= unprepared_watch.FIRST_LOOKS
    watch.asked = -math.inf
    await wait_for_async(lambda: tracker.searching, "nobody searches any more")


def _has_notes(watch: Watch, expected: tuple[str, ...]) -> bool:
    return watch.tracker.notes == expected


async def test_a_rank_that_ended_gives_way(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprepared_watch, "MAX_RANKS", 2)
    pids = sleepers(3)
    watch.find(*pids)
    await wait_for_async(lambda: watch.seen == set(pids[:2]), "as many as are allowed")
    assert any("more than 2 ranks" in note for note in watch.tracker.notes)
    first = next(iter(watch.tracker.ranks.values()))
    assert isinstance(first, UnpreparedRank)
    await end(first)
    await wait_for_async(lambda: pids[2] in watch.seen, "the third one takes its place")


async def test_ended_ranks_are_bounded(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that restarts all day must not displace the last ended ranks with a ring."""
    monkeypatch.setattr(rank_tracker, "MAX_ENDED", 2)
    tracker = watch.tracker
    for number in range(2):
        RingBuilder(tracker.home, start_ticks=number + 1)
    tracker.tick(time.monotonic_ns())
    for pid in sleepers(6):
        rank = tracker.add_unprepared(candidate(pid), job())
        assert rank is not None
        await end(rank)
        tracker.tick(time.monotonic_ns())
        tracker.tick(time.monotonic_ns() + 3_000_000_000)
        assert rank.exit_info is not None
        assert rank.exit_info.signal == 9
    assert len(watch.ranks) == 2
    assert sum(isinstance(rank, RingRank) for rank in tracker.ranks.values()) == 2
    assert len(list(tracker.home.glob("*.ring"))) == 2


async def test_an_ended_rank_that_is_shown_gives_way_last(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy host others come and go while somebody reads why this one ended."""
    monkeypatch.setattr(rank_tracker, "MAX_ENDED", 3)
    tracker = watch.tracker
    tracker.shown = ShownRanks()
    pids = sleepers(6)
    for pid in pids:
        rank = tracker.add_unprepared(candidate(pid), job())
        assert rank is not None
        if pid == pids[0]:
            tracker.shown.note([rank.key], tracker.ranks)
        await end(rank)
        tracker.tick(time.monotonic_ns())
        tracker.tick(time.monotonic_ns() + 3_000_000_000)
    assert watch.ranks == [pids[0], *pids[-2:]]


async def test_a_late_recorder_takes_over(watch: Watch, sleepers: Sleepers) -> None:
    """`frtop_probe.start()` in a running program: it is shown once, as prepared."""
    pids = sleepers(2)
    watch.find(*pids)
    await wait_for_async(lambda: watch.seen == set(pids), "they are seen")
    tracker = watch.tracker
    keys = {rank.pid: rank.key for rank in tracker.ranks.values()}
    RingBuilder(tracker.home, pid=pids[0])
    result = tracker.tick(time.monotonic_ns())
    assert keys[pids[0]] in result.forgotten
    assert watch.ranks == [pids[1]]
    # A search that was under way still has it as unprepared.
    assert tracker.add_unprepared(candidate(pids[0]), job()) is None
    scans = len(watch.reads.scans)
    await wait_for_async(lambda: len(watch.reads.scans) > scans + 1, "further searches")
    assert watch.reads.scans[-1] == {(pids[0], start_ticks(pids[0]))}
    assert [rank.pid for rank in tracker.ranks.values()] == [pids[1], pids[0]]


async def test_a_pid_that_was_reused_is_not_followed(watch: Watch, sleepers: Sleepers) -> None:
    (pid,) = sleepers(1)
    old = candidate(pid, start_ticks=start_ticks(pid) - 5)
    assert watch.tracker.add_unprepared(old, job()) is None
    assert watch.tracker.ranks == {}


async def test_ranks_may_be_many(watch: Watch, sleepers: Sleepers) -> None:
    pids = sleepers(64)
    watch.find(*pids)
    await wait_for_async(lambda: watch.seen == set(pids), "64 ranks")
    assert watch.ranks == pids
    assert len(watch.reads.workers) == 1
    watch.reads.number = 2
    await wait_for_async(
        lambda: all(
            front.number == 2
            for rank in watch.tracker.ranks.values()
            for front in rank.full().group_progress
        ),
        "and again",
    )


def ring_reads(watch: Watch, pid: int) -> list[int]:
    return [since for read, since in watch.reads.rings if read == pid]


async def test_a_ring_is_read_to_compare_ops_and_again_only_for_new_ones(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprepared_watch, "COMPARE_S", 0.05)
    monkeypatch.setattr(unprepared_watch, "FRESH_S", 0.02)
    pids = sleepers(2)
    watch.reads.number = 5
    watch.find(*pids)
    await wait_for_async(lambda: len(watch.reads.rings) == 2, "both rings are read")
    looks = len(watch.reads.looks)
    await wait_for_async(lambda: len(watch.reads.looks) > looks + 8, "further looks")
    assert [ring_reads(watch, pid) for pid in pids] == [[0], [0]]
    watch.reads.number = 9
    await wait_for_async(lambda: len(ring_reads(watch, pids[0])) == 2, "it is read again")
    assert ring_reads(watch, pids[0]) == [0, 6]
    rank = next(r for r in watch.tracker.ranks.values() if r.pid == pids[0])
    await wait_for_async(lambda: len(rank.recent_ops(64)[0]) == 9, "all are known")
    assert rank.full().blocks


async def test_only_of_ranks_that_are_shown_ops_are_kept(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host may have dozens of other ranks, with thousands of ops each."""
    monkeypatch.setattr(unprepared_watch, "COMPARE_S", 0.05)
    monkeypatch.setattr(unprepared_watch, "OTHER_LOOK_S", 1e9)
    now = [0.0]
    watch.shown.__init__(lambda: now[0])  # type: ignore[misc]
    mine, other = sleepers(2)
    watch.reads.number = 5
    watch.find(mine, other)
    await wait_for_async(lambda: watch.seen == {mine, other}, "both are followed")
    ranks = {r.pid: r for r in watch.tracker.ranks.values() if isinstance(r, UnpreparedRank)}
    watch.shown.note([ranks[mine].key, 99], watch.tracker.ranks)
    await wait_for_async(lambda: ranks[mine].flight.ops, "the ring of the one that is shown")
    await wait_for_async(lambda: watch.reads.looks.count(mine) > 8, "it is looked at on and on")
    assert watch.reads.looks.count(other) == unprepared_watch.FIRST_LOOKS
    assert ring_reads(watch, other) == []
    assert (ranks[mine].record, ranks[other].record) == ("/boxes", "")
    watch.shown.note([ranks[other].key], watch.tracker.ranks)  # another screen
    await wait_for_async(lambda: ranks[other].flight.ops, "now its ring, too")
    now[0] = LASTING_S + 1
    watch.shown.note([ranks[other].key], watch.tracker.ranks)
    await wait_for_async(lambda: not ranks[mine].flight.ops, "nobody shows it any more")
    assert ranks[other].flight.ops
    await end(ranks[other])
    now[0] += LASTING_S + 1
    scans = len(watch.reads.scans)
    await wait_for_async(lambda: len(watch.reads.scans) > scans + 2, "further rounds")
    assert ranks[other].flight.ops  # they cannot be read again


async def test_a_snapshot_waits_for_a_ring_for_a_moment_only(
    watch: Watch, sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprepared_watch, "RING_WAIT_S", 0.1)
    monkeypatch.setattr(unprepared_watch, "COMPARE_S", 1e9)
    (pid,) = sleepers(1)
    watch.reads.stuck_rings = {pid}
    watch.find(pid)
    await wait_for_async(lambda: watch.seen == {pid}, "it is seen")
    (rank,) = (r for r in watch.tracker.ranks.values() if isinstance(r, UnpreparedRank))
    begin = time.monotonic()
    for _ in range(3):
        await rank.read_ops(32)
    assert time.monotonic() - begin < DEADLINE_S
    assert len(watch.reads.rings) == 1  # one read at a time
    assert rank.recent_ops(32) == ((), 0)
    looks = len(watch.reads.looks)
    await wait_for_async(lambda: len(watch.reads.looks) > looks + 2, "its c10d state is still read")
    watch.reads.release.set()
    await wait_for_async(lambda: len(rank.recent_ops(32)[0]) == 1, "the read returns")
