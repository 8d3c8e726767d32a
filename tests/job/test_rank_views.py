"""Views that are kept up to date equal those of a full count."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_tui.job.jobs import by_job
from frtop_tui.job.model import ObservedFrame
from frtop_tui.job.rank_views import RankViews
from frtop_tui.job.state import JobState

SECOND: Final = 1_000_000_000
RANKS: Final = 6
JOB: Final = wire.Job("node0", 29500, RANKS, "run-1", 0, "n1", "train.py")
GROUPS: Final = (
    wire.Group(1, "0", "default_pg", "gloo", "0-5"),
    wire.Group(2, "1", "tp", "gloo", "0-1"),
    wire.Group(2, "1", "tp", "gloo", "0-1", exact=False),
    wire.Group(3, "1", "tp", "gloo", "0-1", epoch=1),
)


@st.composite
def updates(draw: st.DrawFn) -> tuple[str, dict[str, object]]:
    """One change that an agent may report of a rank, or time that passes."""
    word = draw(st.sampled_from(
        ["progress", "progress", "group", "beat", "cells", "process", "end", "raise", "snapshot",
         "pass", "pass", "clock", "forget", "full", "again"]
    ))  # fmt: skip
    return word, {
        "rank": draw(st.integers(0, RANKS - 1)),
        "group": draw(st.integers(0, len(GROUPS) - 1)),
        "number": draw(st.integers(0, 3)),
        "lost": draw(st.integers(0, 1)),
        "seconds": draw(st.sampled_from([0.2, 0.9, 2.0, 4.0])),
    }


class World:
    """Two hosts of three ranks each, the second with a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND
        self.skew = [0, 77 * SECOND]
        self.number = [1, 1]
        self.state = JobState()
        self.keys = {rank: rank + 1 for rank in range(RANKS)}
        for host in (0, 1):
            self._update(host, *(self._full(rank) for rank in self._ranks(host)), full=True)

    def change(self, word: str, arguments: dict[str, object]) -> None:
        rank, number = int(str(arguments["rank"])), int(str(arguments["number"]))
        host, lost = rank * 2 // RANKS, int(str(arguments["lost"]))
        host_now = self.now + self.skew[host]
        key = self.keys[rank]
        group = GROUPS[int(str(arguments["group"]))]
        last = wire.Op(number + 1, group.id, number, wire.Signature("barrier"), None, host_now)
        said: dict[str, dict[str, object]] = {
            "progress": {
                "group_progress": (
                    wire.GroupProgress(group.id, number, 0, host_now, last if lost else None),
                )
            },
            "group": {"groups": (group,)},
            "beat": {"status": wire.RankStatus(1, host_now, number)},
            "cells": {
                "status": wire.RankStatus(lost, host_now, 0, side_lost=lost, hook_errors=lost)
            },
            "process": {"process": wire.Process(1 + rank, "T" if lost else "S")},
            "end": {"exit_info": wire.ExitInfo(host_now, 9 * lost)},
            "raise": {
                "exception": wire.UncaughtException("E", "e", "MainThread", bool(lost), host_now)
            },
        }
        if word in said:
            self._update(host, wire.RankUpdate(key, **said[word]))  # type: ignore[arg-type]
        elif word == "pass":
            self.now += int(float(str(arguments["seconds"])) * SECOND)
            if lost:
                self._update(host)
        elif word == "clock":
            self.skew[host] += number * SECOND // 10
            self._update(host)
        elif word == "snapshot":
            snapshot = wire.Snapshot(
                key, host_now, processes=(wire.Process(1 + rank, "T" if lost else "R"),)
            )
            self.state.apply_snapshots(
                f"h{host}", wire.SnapshotResponse(1, f"h{host}", (snapshot,))
            )
        elif word == "forget":
            self._update(host, forgotten=(key,))
        elif word == "full":
            self._update(host, *(self._full(one) for one in self._ranks(host)), full=True)
        else:  # the rank is started again: two processes claim it
            self.keys[rank] += RANKS
            self._update(host, self._full(rank))

    def frame(self) -> ObservedFrame:
        return self.state.frame(self.now, 0)

    def _ranks(self, host: int) -> range:
        return range(host * RANKS // 2, (host + 1) * RANKS // 2)

    def _full(self, rank: int, job: wire.Job = JOB, key: int = 0) -> wire.RankUpdate:
        host_now = self.now + self.skew[rank * 2 // RANKS]
        identity = wire.Identity(1 + rank, 1, rank, 0, job, started_ns=host_now - 9 * SECOND)
        return wire.RankUpdate(
            key or self.keys[rank], identity, wire.RankStatus(1, host_now, 0), GROUPS[:1],
            (wire.GroupProgress(1, 1, 0, host_now),), (),
        )  # fmt: skip

    def _update(self, host: int, *ranks: wire.RankUpdate, **fields: object) -> None:
        self.number[host] += 1
        update = wire.Update(
            f"h{host}", f"i{host}", self.number[host], self.now + self.skew[host], 0, ranks,
            **fields,  # type: ignore[arg-type]
        )  # fmt: skip
        assert self.state.apply(f"h{host}", update, self.now)


@given(st.lists(st.lists(updates(), min_size=1, max_size=4), min_size=2, max_size=12))
def test_incremental_views_equal_a_full_count(
    turns: list[list[tuple[str, dict[str, object]]]],
) -> None:
    world = World()
    world.frame()
    for turn in turns:
        for word, arguments in turn:
            world.change(word, arguments)
        frame = world.frame()
        hosts = world.state._hosts.values()
        jobs, _ = by_job(record for host in hosts for record in host.records.values())
        if not jobs:
            assert not frame.ranks
            continue
        fresh = RankViews()
        fresh.update(jobs[0], (), world.now)
        assert (frame.job, frame.up_s) == (jobs[0].job, jobs[0].up_s(world.now))
        assert frame.ranks == fresh.views
        assert list(frame.ranks) == sorted(frame.ranks)
        assert frame.groups == fresh.groups.views()
        assert frame.coverage == fresh.counts.coverage(fresh.views, RANKS, 0, 0)
        assert (frame.health, frame.since_ns) == (fresh.health, fresh.since_ns)


def test_only_changed_ranks_get_new_views() -> None:
    world = World()
    before = world.frame()
    world.change("progress", {"rank": 4, "group": 0, "number": 2, "lost": 1, "seconds": 0.2})
    after = world.frame()
    changed = {rank for rank in range(RANKS) if after.ranks[rank] is not before.ranks[rank]}
    assert changed == {4}
    assert after.groups[0].number == 2
    world.now += SECOND
    assert world.frame().ranks is after.ranks
    assert world.frame().groups[0] is after.groups[0]


def test_ranks_of_another_job_do_not_replace_shown_ones() -> None:
    world = World()
    world.frame()
    elsewhere = wire.Job("node9", 29500, RANKS, "run-2", 0, "n2", "eval.py")
    full = {
        host: [
            *(world._full(rank) for rank in world._ranks(host)),
            *(world._full(rank, elsewhere, 100 + rank) for rank in world._ranks(host)),
        ]
        for host in (0, 1)
    }
    for host, ranks in full.items():
        world._update(host, *ranks, full=True)
    world.state.frame(world.now, 0, "run-1")
    for step in range(1, 4):
        for host, ranks in full.items():
            host_now = world.now + world.skew[host]
            present = wire.RankStatus(1, host_now, 0, step=step)
            world._update(host, *(wire.RankUpdate(one.key, status=present) for one in ranks))
        frame = world.state.frame(world.now, 0, "run-1")
        steps = [view.status.step for view in frame.ranks.values() if view.status]
        assert steps == [step] * RANKS


def test_a_host_that_was_reported_for_a_moment_is_unreachable_since_then() -> None:
    """Between two frames: all of its ranks were unreachable in both."""
    world = World()
    arguments: dict[str, object] = {
        "rank": 0, "group": 0, "number": 0, "lost": 0, "seconds": 4.0,
    }  # fmt: skip
    world.change("progress", arguments)
    world.frame()
    for _ in range(3):
        world.change("progress", arguments)
        world.change("progress", arguments)
        reported_ns = world.now
        world.change("pass", arguments)
        frame = world.frame()
        assert [frame.ranks[rank].state_since_ns for rank in range(3)] == [reported_ns] * 3
    assert frame.ranks[1].state == "unreachable"


def test_an_overdue_heartbeat_is_noticed_without_a_message() -> None:
    world = World()
    world.frame()
    for _ in range(4):
        world.now += SECOND // 2
        for rank in (3, 4):
            world.change("beat", {"rank": rank, "group": 0, "number": 0, "lost": 0, "seconds": 0})
        postures = {rank: view.state for rank, view in world.frame().ranks.items()}
    assert postures == {
        0: "moving",
        1: "moving",
        2: "moving",
        3: "moving",
        4: "moving",
        5: "silent",
    }
