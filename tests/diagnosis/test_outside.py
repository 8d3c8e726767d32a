"""Nobody is in any op: hung only if something outside of the job keeps all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from diagnosis.scenes import Scene, frame, only
from frtop_tui.diagnosis.report import exit_status


def fetches(scene: Scene, rank: int) -> None:
    scene.fetches(rank, worker=2, pid=90112 + rank, for_s=50)
    scene.worker(rank, 90112 + rank, "D", "read", "/data/shard-0412")


def streams(scene: Scene, rank: int) -> None:
    scene.fetches(rank, worker=2, pid=90112 + rank, for_s=50)
    scene.worker(rank, 90112 + rank, "S", "recvfrom", "socket:[12]")


def polls_for_data(scene: Scene, rank: int) -> None:
    scene.fetches(rank, worker=2, pid=90112 + rank, for_s=50)
    scene.worker(rank, 90112 + rank, "S", "clock_nanosleep")


def reads(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("train.py:44", source="state = handle.read()"))
    scene.kernel(rank, "D", "read", "nfs_wait_bit", "/nfs/vocabulary")


def waits_for_key(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("train.py:33", source="store.wait(['ready'])"))
    scene.kernel(rank, "S", "poll", "poll_schedule_timeout")


def stops(scene: Scene, rank: int) -> None:
    scene.kernel(rank, "T")
    scene.silent(rank, 50)


def holds_gil(scene: Scene, rank: int) -> None:
    scene.silent(rank, 50)
    scene.actors[rank].owns_gil = True
    scene.at(rank, frame("ext.py:60", "run", "lib.solve(x)"))


def sleeps(scene: Scene, rank: int) -> None:
    scene.sleeps(rank)


def waits_at_queue(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("/usr/lib/python3.11/queue.py:171", "get"), frame("serve.py:9"))


def waits_for_socket(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("/usr/lib/python3.11/socket.py:718", "readinto"), frame("serve.py:9"))
    scene.kernel(rank, "S", "recvfrom", "tcp_recvmsg", "socket:[123]")


def computes(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("train.py:35", source="matrix = matrix @ matrix"), active=True)
    scene.kernel(rank, "R")


Play = Callable[[Scene, int], None]


def everybody(play: Play, ranks: int = 4) -> Scene:
    """A minute after the last op."""
    scene = Scene(ranks)
    for rank in range(ranks):
        play(scene, rank)
    return scene


@pytest.mark.parametrize(("play", "cause", "text"), [
    (fetches, "dataloader", "/data/shard-0412"),
    (reads, "file_io", "/nfs/vocabulary"),
    (waits_for_key, "store", "train.py:33"),
    (stops, "stopped", "SIGSTOP"),
    (holds_gil, "gil", "ext.py:60"),
])  # fmt: skip
def test_all_are_kept_for_good(play: Play, cause: str, text: str) -> None:
    found = everybody(play).settle(6)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("not_entered", (0, 1, 2, 3))
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")
    assert verdict.why.cause == cause
    assert text in verdict.why.text
    assert verdict.headline.startswith("nobody is in an op, and none was issued for 1m0")
    assert (found.health, exit_status(found)) == ("hung", 3)


@pytest.mark.parametrize("play", [
    sleeps, waits_at_queue, waits_for_socket, computes, streams, polls_for_data,
])  # fmt: skip
def test_what_may_be_a_rest_is_no_hang(play: Play) -> None:
    found = everybody(play).settle(10)
    assert found.verdicts == ()
    assert (found.health, exit_status(found)) == ("healthy", 0)
    assert "nobody is in an op, and none was issued for 1m10s; rank 0: " in found.notes[0]


def test_until_all_were_looked_at_twice_it_is_open() -> None:
    found = everybody(reads).settle(1)
    assert found.verdicts == ()
    assert (found.health, exit_status(found)) == ("waiting", 4)


@pytest.mark.parametrize("play", [sleeps, computes, waits_at_queue])
def test_one_of_another_kind_may_be_whom_all_wait_for(play: Play) -> None:
    scene = everybody(reads)
    play(scene, 2)
    assert scene.settle(10).verdicts == ()


def test_who_is_kept_by_two_things_is_told_for_each() -> None:
    scene = everybody(reads)
    fetches(scene, 2)
    found = scene.settle(6)
    causes = {verdict.culprits: verdict.why.cause for verdict in found.verdicts}
    assert causes == {(0, 1, 3): "file_io", (2,): "dataloader"}


def test_who_waits_for_a_key_is_not_blamed_while_somebody_is_elsewhere() -> None:
    scene = everybody(waits_for_key)
    reads(scene, 2)
    verdict = only(scene.settle(6))
    assert (verdict.culprits, verdict.why.cause) == ((2,), "file_io")


def test_it_takes_half_a_minute() -> None:
    scene = everybody(reads)
    scene.does(range(4), "all_reduce", ago=10)
    found = scene.settle(15)
    assert (found.verdicts, found.notes, found.health) == ((), (), "healthy")
    assert only(scene.settle(15)).culprits == (0, 1, 2, 3)


def test_a_step_or_a_fetch_is_a_sign_of_life_as_well() -> None:
    scene = everybody(reads)
    scene.actors[3].step_at = scene.now - 5
    found = scene.settle(10)
    assert (found.verdicts, found.notes) == ((), ())


def test_who_reads_on_is_not_hung() -> None:
    scene = everybody(fetches)
    found = scene.judge().frame
    for step in range(16):
        scene.pass_time(0.5)
        worker = scene.actors[1].children[0]
        scene.actors[1].children[0] = type(worker)(
            worker.pid, "D", "pt_data_worker", "", "read", "/data/shard-0412",
            io_bytes=step * 1_000_000,
        )  # fmt: skip
        found = scene.judge().frame
    assert (found.verdicts, found.health) == ((), "healthy")


def test_nobody_is_judged_while_somebody_is_not_seen() -> None:
    scene = Scene(4, hosts=2)
    for rank in range(4):
        reads(scene, rank)
    scene.hear()
    scene.deafen(1)
    scene.pass_time(20)
    assert scene.settle(10).verdicts == ()


def test_nobody_is_judged_before_the_first_op() -> None:
    scene = Scene(4, begun=0)
    for rank in range(4):
        reads(scene, rank)
    found = scene.settle(10)
    assert (found.verdicts, found.notes) == ((), ())


def test_who_has_left_is_not_waited_for() -> None:
    scene = everybody(reads)
    scene.ends(0, clean=True)
    assert only(scene.settle(6)).culprits == (1, 2, 3)


def test_of_very_many_the_first_are_looked_at() -> None:
    verdict = only(everybody(reads, 100).settle(12))
    assert verdict.culprits == tuple(range(64))
    assert "36 more ranks are in no op either; they were not looked at" in verdict.evidence


def test_it_is_over_when_they_go_on() -> None:
    scene = everybody(reads)
    assert scene.settle(6).health == "hung"
    for actor in scene.actors.values():
        actor.process = None
    scene.does(range(4), "all_reduce", ago=0.1)
    assert scene.settle(1).health == "healthy"
