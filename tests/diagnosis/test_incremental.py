"""What is kept between frames only saves work: a new engine comes to the same, every time.

Scenes change at random, a few ranks at a time, and only what changed is told. After every
frame an engine that has seen none before judges it, with the memory that the other one had.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from diagnosis.scenes import (
    BACKWARD,
    COLLECTIVE,
    DATALOADER,
    LOCK,
    MAIN,
    SECOND,
    WORLD,
    Actor,
    Scene,
    frame,
)
from frtop_probe import wire
from frtop_tui.diagnosis.engine import Engine, Judgement, Memory

RANKS: Final = 6
GROUPS: Final = (WORLD, "left", "right", "pair", "old")
KINDS: Final = ("all_reduce", "all_gather", "barrier", "all_to_all")
STACKS: Final = (COLLECTIVE, BACKWARD, DATALOADER, LOCK, (frame("ext.py:60", "run", "solve(x)"),))
Change = tuple[str, int, int, float]
"""What happens, to which rank, in which way, and some seconds."""


class Play:
    """A scene of which only what changed is told, judged by one engine all along."""

    def __init__(self, *, looks: int = 2) -> None:
        self.looks = looks
        self.scene = Scene(RANKS, hosts=2, timeout_s=60.0, counts=True)
        self.scene.group("left", range(3), "left")
        self.scene.group("right", range(3, 6), "right")
        self.scene.group("pair", (2, 3), "pair")
        self.scene.group("old", range(6), "old")
        for actor in self.scene.actors.values():
            number = self.scene.local(actor.rank, "old")
            group = actor.groups[number]
            actor.groups[number] = wire.Group(
                group.id, group.name, "old", group.backend, group.ranks, exact=False
            )
        self.scene.hear()
        self.told: dict[int, wire.RankUpdate] = {}
        self.changes: dict[str, Callable[[Actor, int, float], None]] = {
            "wait": self._wait, "wait late": self._wait_late, "do": self._do, "send": self._send,
            "make a group": self._make_group, "complete": self._complete, "stack": self._stack,
            "look": self._look, "silent": self._silent, "stop": self._stop, "fetch": self._fetch,
            "die": self._die, "raise": self._raise, "clock": self._clock, "more": self._more,
            "hang": self._hang, "part": self._part, "unnoted": self._unnoted,
            "beside": self._beside, "receive": self._receive,
        }  # fmt: skip

    def change(self, change: Change) -> None:
        word, rank, way, seconds = change
        if word == "pass":
            self.scene.pass_time(seconds)
        elif word == "deafen":
            self.scene.deaf ^= {way % 2}
        elif word == "hear all":
            self.scene.hear()
        elif self.scene.actors[rank].exit_info is None:
            self.changes[word](self.scene.actors[rank], way, seconds)

    def judge(self) -> None:
        """One frame, judged twice."""
        self._tell()
        engine = self.scene.engine
        before = deepcopy(engine.memory)
        told = self.scene.frame()
        kept, fresh = engine.judge(told), (anew := Engine(before)).judge(told)
        same(kept, fresh)
        assert remembered(engine.memory) == remembered(anew.memory)
        self.scene.look(Judgement(kept.frame, kept.look_requests[: self.looks]))

    def _tell(self) -> None:
        scene = self.scene
        scene.number += 1
        for index, host in enumerate(scene.hosts):
            if index in scene.deaf:
                continue
            here = [scene.update_of(a) for a in scene.actors.values() if a.host == index]
            news = tuple(news_of(self.told.get(rank.key), rank) for rank in here)
            self.told |= {rank.key: rank for rank in here}
            at_ns = int((scene.now + scene.skews[index]) * SECOND)
            update = wire.Update(host, f"agent-{host}", scene.number, at_ns, 0, news)
            if not scene.state.apply(host, update, scene.now_ns):
                whole = wire.Update(
                    host, f"agent-{host}", scene.number, at_ns, 0, tuple(here), full=True
                )
                assert scene.state.apply(host, whole, scene.now_ns)

    def _group(self, actor: Actor, way: int) -> str:
        names = [group.name for group in actor.groups.values()]
        return names[way % len(names)]

    def _wait(self, actor: Actor, way: int, seconds: float) -> None:
        group, kind = self._group(actor, way), KINDS[way // 5 % 3]
        thread = MAIN + (way % 7 == 0)
        self.scene.waits([actor.rank], kind, group=group, for_s=seconds, thread=thread)

    def _hang(self, actor: Actor, way: int, seconds: float) -> None:
        """All members of a group but one wait for it."""
        group = GROUPS[way % 3]
        others = [a for a in self._living(group) if a is not actor]
        self.scene.waits([a.rank for a in others], "all_reduce", group=group, for_s=seconds)

    def _part(self, actor: Actor, way: int, seconds: float) -> None:
        """Those of each half wait for each other in different groups, or in different ops."""
        ranks = [a.rank for a in self._living(WORLD)]
        self.scene.waits([r for r in ranks if r < actor.rank], "barrier", for_s=seconds)
        group, left = ("left", WORLD)[way % 2], [r for r in ranks if r >= actor.rank]
        left = [r for r in left if group == WORLD or r in range(3)]
        self.scene.waits(left, "all_reduce", group=group, for_s=seconds)

    def _unnoted(self, actor: Actor, way: int, seconds: float) -> None:
        """An op is over, which a rank could not note; some wait in the next one."""
        others = [a.rank for a in self._living(WORLD) if a is not actor]
        self.scene.waits([actor.rank], "all_reduce", for_s=seconds)
        self.scene.does(others, "all_reduce", ago=seconds)
        self.scene.waits(others[: way % 4], "barrier", for_s=min(seconds, 0.3))
        self.scene.silent(actor.rank, 4.0)

    def _living(self, group: str) -> list[Actor]:
        return [
            actor
            for actor in self.scene.actors.values()
            if actor.exit_info is None and group in [g.name for g in actor.groups.values()]
        ]

    def _wait_late(self, actor: Actor, way: int, seconds: float) -> None:
        group, tracked = self._group(actor, way), way % 3 > 0
        self.scene.waits(
            [actor.rank], "all_to_all", group=group, for_s=seconds, sync=False, tracked=tracked,
            in_splits=(way,) * RANKS, out_splits=(1,) * RANKS,
        )  # fmt: skip

    def _do(self, actor: Actor, way: int, seconds: float) -> None:
        reduce = ("sum", "max")[way % 9 == 0]
        group = self._group(actor, way)
        self.scene.does([actor.rank], "all_reduce", group=group, ago=seconds, reduce=reduce)

    def _send(self, actor: Actor, way: int, seconds: float) -> None:
        kind = ("send", "recv")[way % 2]
        self.scene.waits([actor.rank], kind, for_s=seconds, p2p=True, peer=way % RANKS, tag=way % 3)

    def _receive(self, actor: Actor, way: int, seconds: float) -> None:
        """All but one wait for messages, some from any source; not all counts are known."""
        for rank in (a.rank for a in self._living(WORLD) if a is not actor):
            peer = (rank + way) % RANKS if way % 4 else None
            kind = "recv" if way % 4 else "recv_any_source"
            self.scene.waits([rank], kind, for_s=seconds, p2p=True, peer=peer, tag=way % 3)
        if way % 5 == 0 and actor.messages:
            actor.messages.pop(next(iter(actor.messages)))

    def _make_group(self, actor: Actor, way: int, seconds: float) -> None:
        kind = ("new_group", "init_process_group")[way % 2]
        self.scene.in_pseudo([actor.rank], kind, seconds)

    def _complete(self, actor: Actor, way: int, _seconds: float) -> None:
        if actor.pending:
            del actor.pending[way % len(actor.pending)]

    def _beside(self, actor: Actor, way: int, _seconds: float) -> None:
        """A transport past c10d, of it or of all, comes or goes; it may be at its device."""
        ranks = [actor.rank] if way % 3 else [*self.scene.actors]
        self.scene.beside(ranks, *(["DeepEP"] if way % 5 else []))
        if way % 2:
            self.scene.at(actor.rank, frame("decode.py:9", source="loss.item()"), active=True)

    def _stack(self, actor: Actor, way: int, _seconds: float) -> None:
        self.scene.at(actor.rank, *STACKS[way % len(STACKS)], active=way % 2 > 0)
        actor.owns_gil = way % 4 == 0

    def _look(self, actor: Actor, way: int, _seconds: float) -> None:
        host = self.scene.hosts[actor.host]
        look = self.scene.look_of(actor, stacks=way % 3 > 0)
        answer = wire.SnapshotResponse(1, host, (look,))
        self.scene.state.apply_snapshots(host, answer)

    def _silent(self, actor: Actor, way: int, seconds: float) -> None:
        actor.heartbeat = None if way % 2 else self.scene.now - seconds

    def _stop(self, actor: Actor, way: int, _seconds: float) -> None:
        self.scene.kernel(actor.rank, "ST"[way % 2], "futex", "futex_do_wait", cpu_ns=way)

    def _fetch(self, actor: Actor, way: int, seconds: float) -> None:
        self.scene.fetches(actor.rank, for_s=seconds)
        if way % 2 and actor.fetch is not None:
            actor.fetch = wire.DataLoaderFetch(actor.fetch.begin_ns, actor.fetch.begin_ns + 1)

    def _die(self, actor: Actor, way: int, seconds: float) -> None:
        how: dict[str, int] = ({"exit_code": 0}, {"exit_code": 1}, {"signal": 9}, {"signal": 6})[
            way % 4
        ]
        self.scene.ends(actor.rank, clean=way % 4 == 0, ago=min(seconds, 3.0), **how)

    def _raise(self, actor: Actor, way: int, seconds: float) -> None:
        text = ("Connection closed by peer", "Timed out waiting 60000ms for recv", "no")[way % 3]
        self.scene.raises(actor.rank, "RuntimeError", text, ago=min(seconds, 3.0))

    def _clock(self, actor: Actor, way: int, _seconds: float) -> None:
        self.scene.skews[actor.host] += way / 100

    def _more(self, actor: Actor, way: int, _seconds: float) -> None:
        actor.pending_more = way % 2


def news_of(old: wire.RankUpdate | None, new: wire.RankUpdate) -> wire.RankUpdate:
    """What an agent tells: mostly that a rank's heartbeat goes on."""
    if old is None:
        return new
    alike = (old.pending, old.pending_more) == (new.pending, new.pending_more)
    return structs.replace(
        new,
        identity=None,
        groups=tuple(group for group in new.groups if group not in old.groups),
        group_progress=tuple(
            front for front in new.group_progress if front not in old.group_progress
        ),
        pending=None if alike else new.pending,
        process=None if old.process == new.process else new.process,
        transports=None if old.transports == new.transports else new.transports,
        messages=None if old.messages == new.messages else new.messages,
    )


def same(one: Judgement, other: Judgement) -> None:
    """Told apart by parts, so that a failure says where."""
    assert one.frame.verdicts == other.frame.verdicts
    assert one.frame.ranks == other.frame.ranks
    assert list(one.frame.ranks) == list(other.frame.ranks)
    assert one.frame.groups == other.frame.groups
    assert one == other


def remembered(memory: Memory) -> list[object]:
    """All that is in a memory, to be compared."""
    objects = (memory.mismatches, memory.look_requests, memory.checksum_hints)
    values = [memory.job, memory.before_death, memory.health, memory.since_ns]
    slotted = (
        memory.false_alarms, memory.confirmations, memory.rest, memory.standing, memory.releases,
    )  # fmt: skip
    return [*values, *slotted, *map(vars, objects)]


WORDS: Final = (
    "wait", "wait", "wait late", "do", "do", "send", "make a group", "complete", "complete",
    "receive", "receive",
    "stack", "look", "silent", "stop", "fetch", "clock", "more", "deafen", "hear all",
    "hang", "hang", "part", "unnoted", "unnoted", "beside", "beside",
    "pass", "pass", "pass", "pass",
)  # fmt: skip
ENDS: Final = ("die", "raise")
changes = st.tuples(
    st.sampled_from(WORDS * 3 + ENDS),
    st.integers(0, RANKS - 1),
    st.integers(0, 44),
    st.sampled_from([0.3, 0.9, 1.5, 4.0, 12.0, 40.0]),
)


all_rounds = st.lists(st.lists(changes, min_size=1, max_size=4), min_size=2, max_size=8)


@given(all_rounds, st.data())
def test_what_was_kept_makes_no_difference(rounds: list[list[Change]], data: st.DataObject) -> None:
    play = Play()
    play.judge()
    for update in rounds:
        for change in update:
            play.change(change)
        play.judge()
        for seconds in data.draw(st.lists(st.sampled_from([0.3, 0.7, 2.5]), max_size=2)):
            play.change(("pass", 0, 0, seconds))  # and nothing else happens
            play.judge()


PASS: Final[list[Change]] = [("pass", 0, 0, 0.9)]


@pytest.mark.parametrize("rounds", [
    # who is absent from a group that was not counted from its beginning shows by pending ops
    [[("wait", 0, 2, 40.0), ("wait", 1, 2, 40.0)], [("complete", 1, 0, 0.0)]],
    # who is absent enters a wait of its own, which only time makes a reason
    [[("hang", 2, 0, 12.0), ("wait", 2, 1, 0.3)], PASS, PASS],
    # the absent one comes, and the next one does not
    [[("hang", 2, 0, 12.0)], [("do", 2, 0, 0.3), ("complete", 0, 0, 0.0)], [("hang", 3, 0, 4.0)]],
    # whether an op is over depends on others, who get through one after the other
    [[("unnoted", 1, 2, 12.0), ("wait", 5, 0, 12.0)], [("complete", 5, 0, 0.0)], PASS, PASS],
    # the peer of a receive posts its half
    [[("send", 0, 1, 12.0), ("silent", 0, 1, 0.0)], PASS, [("send", 1, 0, 0.3)], PASS],
    # a host is no longer reporting, and is again
    [[("hang", 4, 0, 12.0)], [("deafen", 0, 1, 0.0), ("pass", 0, 0, 4.0)], [("deafen", 0, 1, 0.0)]],
])  # fmt: skip
def test_what_is_known_of_a_wait_changes_with_others(rounds: list[list[Change]]) -> None:
    play = Play(looks=0)
    for update in rounds:
        for change in update:
            play.change(change)
        play.judge()


def test_a_moment_before_the_last_one_is_judged_as_it_was() -> None:
    play = Play()
    play.change(("wait", 0, 0, 0.3))
    play.judge()
    early = play.scene.frame()
    blocked = play.scene.engine.judge(early).frame.ranks[0].state
    play.change(("pass", 0, 0, 4.0))
    play.judge()
    assert play.scene.engine.judge(early).frame.ranks[0].state == blocked
