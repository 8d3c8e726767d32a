"""Servers without work: in an event loop, at a listening socket or at a queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from diagnosis.absences import (
    absent,
    asyncio_server,
    listening_socket,
    other_loop,
    server_unseen,
    thread_server,
)
from diagnosis.scenes import LOCK, MAIN, WORLD, Scene, frame, only, told
from diagnosis.unprepared import Unprepared
from frtop_probe import wire
from frtop_tui.text.exit_status import exit_status


@pytest.mark.parametrize("play", [
    asyncio_server, other_loop, thread_server, listening_socket, server_unseen,
], ids=lambda p: p.__name__)  # fmt: skip
def test_an_idle_server_holds_up_the_others_and_is_not_hung(
    play: Callable[[Scene], None],
) -> None:
    found = absent(play, for_s=300).settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "idle")
    assert (verdict.confidence, verdict.progress) == ("confirmed", "unknown")
    assert "waits for work from outside the job" in verdict.why.text
    assert verdict.next.startswith("send rank 2 work")
    assert found.health == "held up"
    assert exit_status(found) == 5


def test_a_server_that_looks_for_clients_at_this_moment_is_idle_as_well() -> None:
    scene = absent(thread_server)
    scene.actors[2].active = True  # it wakes twice a second, to see whether it is to end
    found = scene.settle()
    assert (only(found).why.cause, found.health) == ("idle", "held up")


def test_a_rank_without_progress_is_blamed_before_an_idle_server() -> None:
    scene = absent(asyncio_server)
    scene.actors[3].pending.clear()
    scene.actors[3].group_progress.clear()
    scene.sleeps(3)
    verdict = only(scene.settle())
    assert verdict.culprits == (3,)


SERVER = (
    frame("/usr/lib/python3.11/selectors.py:415", "select"),
    frame("/usr/lib/python3.11/socketserver.py:233", "serve_forever"),
)
LOOP = (
    frame("/usr/lib/python3.11/selectors.py:468", "select"),
    frame("/usr/lib/python3.11/asyncio/base_events.py:1884", "_run_once"),
)
PREFETCH = (frame("data.py:9", "fill", "batch = self.file.read(size)"),)
SIMPLE = (frame("engine.py:9", "next", "request = self.requests.get()"),)


@pytest.mark.parametrize(
    ("main", "others", "cause", "awake"),
    [
        (LOCK, (SERVER,), "idle", False),
        (LOCK, (SERVER,), "idle", True),  # it looks for clients at this moment
        (LOCK, (LOOP, LOCK), "idle", False),
        (SIMPLE, (SERVER,), "idle", False),
        (LOCK, (), "lock", False),
        (LOCK, (PREFETCH,), "lock", False),
        (LOCK, (SERVER, PREFETCH), "lock", False),  # a trainer that serves metrics
        (LOCK[:1], (SERVER,), "lock", False),  # a lock that is no queue's
    ],
)
def test_a_rank_at_a_queue_is_idle_if_a_thread_serves_and_none_works(
    main: tuple[wire.TraceFrame, ...],
    others: tuple[tuple[wire.TraceFrame, ...], ...],
    cause: str,
    *,
    awake: bool,
) -> None:
    scene = Scene(4)
    scene.actors[0].other_threads = tuple(
        wire.ThreadStack(MAIN + n, 2000 + n, f"Thread-{n}", awake, False, frames)
        for n, frames in enumerate(others, 1)
    )
    scene.waits([1, 2, 3], "broadcast", for_s=10)
    scene.at(0, *main)
    scene.kernel(0, syscall="futex", wchan="futex_do_wait")
    found = scene.settle()
    assert told(found, "culprits", "why.cause") == ((0,), cause)
    assert found.health == ("held up" if cause == "idle" else "hung")


Play = Callable[[Scene], None]


def everywhere(play: Play) -> Scene:
    """Rank 2 serves, nobody is in an op, and the others wait for it at a queue of their own."""
    scene = Scene(4, ago=40)
    play(scene)
    for rank in (0, 1, 3):
        scene.at(rank, *LOCK)
    return scene


@pytest.mark.parametrize("play", [asyncio_server, listening_socket])
def test_who_was_never_seen_to_serve_may_be_stuck(play: Play) -> None:
    scene = everywhere(play)
    assert scene.settle(10).health == "waiting"
    found = scene.settle(20)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, found.health) == ("undecided", (), "undecided")
    assert verdict.why.text == (
        "rank 2 is where a server waits for work, but was never seen to wait there before and go on"
    )
    assert verdict.evidence[0].startswith("ranks 0-1,3: MainThread waits for a lock or another thr")
    assert exit_status(found) == 4


@pytest.mark.parametrize("play", [asyncio_server, thread_server])
def test_a_server_that_waits_where_it_did_before_is_idle(play: Play) -> None:
    scene = everywhere(play)
    scene.settle(8)
    scene.does(range(4), "broadcast", ago=0.1)
    found = scene.settle(200)
    assert (found.verdicts, found.health, exit_status(found)) == ((), "healthy", 0)
    assert "rank 2: MainThread waits for work from outside the job" in found.notes[0]


def test_a_host_that_is_not_reported_for_a_moment_shows_nobody_going_on() -> None:
    scene = everywhere(asyncio_server)
    scene.settle(30)
    scene.deafen(0)
    scene.settle(8)
    scene.deaf.clear()
    found = scene.settle(40)
    assert (only(found).kind, found.health) == ("undecided", "undecided")


def test_only_who_went_on_itself_is_known_to_wait_there() -> None:
    scene = everywhere(asyncio_server)
    scene.settle(8)
    scene.does([0, 1, 3], "all_reduce", group=WORLD, ago=0.1)
    scene.actors[2].group_progress.clear()
    found = scene.settle(120)
    assert (only(found).kind, found.health) == ("undecided", "undecided")


def test_a_server_that_waits_elsewhere_than_before_is_not_known_to_be_idle() -> None:
    scene = everywhere(asyncio_server)
    scene.settle(8)
    scene.does(range(4), "broadcast", ago=0.1)
    scene.at(2, frame("/usr/lib/python3.11/asyncio/runners.py:118", "run"), frame("train.py:80"))
    assert scene.settle(120).health == "undecided"


def test_an_event_loop_beside_the_thread_that_trains_is_no_server() -> None:
    """Ray keeps its loop in MainThread, and trains in another thread."""
    scene = Scene(4, ago=40)
    for rank in range(4):
        asyncio_at(scene, rank)
    found = scene.settle(50)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("not_entered", (0, 1, 2, 3))
    assert (verdict.why.cause, found.health) == ("lock", "held up")
    assert 'thread "trainer" waits for a lock or another thread at train.py:40' in verdict.why.text


def asyncio_at(scene: Scene, rank: int) -> None:
    actor = scene.actors[rank]
    for at, op in enumerate(actor.recent):
        actor.recent[at] = structs.replace(op, thread=MAIN + 5)
    for number, front in actor.group_progress.items():
        last = structs.replace(front.last, thread=MAIN + 5) if front.last else None
        actor.group_progress[number] = structs.replace(front, last=last)
    scene.at(rank, *LOOP)
    scene.kernel(rank, "S", "epoll_wait", "ep_poll")
    trainer = wire.ThreadStack(MAIN + 5, 2005, "trainer", False, False, (LOCK[0], LOCK[2]))
    actor.other_threads = (trainer,)
    actor.threads = (wire.Process(2005, "S", "trainer", "futex_do_wait", "futex"),)


def trains_beside(scene: Scene, rank: int, line: int) -> None:
    """Without a recorder nothing tells which thread works, if none is in torch's code."""
    asyncio_at(scene, rank)
    at = frame(f"train.py:{line}", "train", "batch = link.recv(size)")
    trainer = wire.ThreadStack(MAIN + 5, 2005, "trainer", False, False, (at,))
    scene.actors[rank].other_threads = (trainer,)


def test_an_event_loop_is_no_server_where_another_thread_is_elsewhere_than_before() -> None:
    scene = Unprepared(2, ago=40)
    for rank in range(2):
        trains_beside(scene, rank, 30)
    scene.settle(8)
    scene.does(range(2), "all_reduce", ago=0.1)
    trains_beside(scene, 1, 44)
    found = scene.settle(120)
    verdict = only(found)
    assert (verdict.kind, found.health) == ("undecided", "undecided")
    assert verdict.evidence[1].startswith("rank 1: MainThread waits for work")
    assert verdict.evidence[1].endswith(', thread "trainer" is at train.py:44 (train), in futex')


def test_a_thread_that_has_ended_since_keeps_no_server_from_being_idle() -> None:
    scene = Unprepared(2, ago=40)
    for rank in range(2):
        trains_beside(scene, rank, 30)
    scene.settle(8)
    scene.does(range(2), "all_reduce", ago=0.1)
    for actor in scene.actors.values():
        actor.other_threads = ()
    found = scene.settle(120)
    assert (found.verdicts, found.health) == ((), "healthy")


def test_a_prompt_waits_for_a_person() -> None:
    scene = Scene(2, ago=40)
    for rank in range(2):
        scene.at(rank, frame("/usr/lib/python3.11/code.py:262", "raw_input"))
        scene.kernel(rank, "S", "read", "wait_woken", "/dev/pts/3")
    found = scene.settle(50)
    assert (found.verdicts, found.health, exit_status(found)) == ((), "healthy", 0)
