"""Waits of which it is not known yet whether they are unusual: no verdict, and not healthy."""

from __future__ import annotations

import pytest

from diagnosis.scenes import Scene, frame, three_wait
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.json_document import document
from frtop_tui.text.plain import text


def first_barrier(for_s: float = 25.0) -> Scene:
    scene = Scene(4, begun=40)
    scene.waits([1], "barrier", for_s=for_s, usual_count=0, site="train.py:88")
    for rank in (0, 2, 3):
        scene.at(rank, frame("train.py:30"), active=True)
    return scene


def test_a_wait_of_unknown_meaning_is_told() -> None:
    found = first_barrier().settle(0)
    assert (found.health, exit_status(found), found.verdicts) == ("waiting", 4, ())
    lines = text(found)
    assert lines[0] == "train.py: WAITING for 25s; 4 of 4 ranks reporting, 1 host"
    assert lines[1] == (
        "rank 1 waits 25s in barrier #41 of default_pg at train.py:88;"
        " its usual duration is not known yet"
    )
    assert document(found)["notes"] == lines[1:2]


@pytest.mark.parametrize(("for_s", "health"), [(2.9, "healthy"), (3.1, "waiting")])
def test_a_few_seconds_are_nothing(for_s: float, health: str) -> None:
    assert first_barrier(for_s).settle(0).health == health


def test_a_known_site_tells_what_is_usual_there() -> None:
    scene = three_wait(9, usual_s=2)
    (note,) = scene.settle(0).notes
    assert note == (
        "ranks 0-1,3 wait 9.0s in all_reduce #8 of default_pg at train.py:20; usually 2.00 s there"
    )


def test_without_a_line_nothing_is_said_to_be_usual_there() -> None:
    scene = three_wait(9, usual_s=2, site=None)
    (note,) = scene.settle(0).notes
    assert note == (
        "ranks 0-1,3 wait 9.0s in all_reduce #8 of default_pg;"
        " that is longer than usual in this group"
    )
    scene.sleeps(2)
    scene.waits([0, 1, 3], "all_reduce", for_s=60, usual_s=2, site=None)
    (verdict,) = scene.settle(4).verdicts
    assert verdict.evidence[0].startswith("rank 0 waits in all_reduce #9 of default_pg for ")
    assert "usually" not in verdict.evidence[0]


def test_a_rendezvous_that_lasts_is_a_wait_too() -> None:
    scene = Scene(4, begun=0)
    scene.in_pseudo(range(4), "init_process_group", for_s=20)
    for actor in scene.actors.values():
        actor.groups.clear()
    found = scene.settle(0)
    assert found.health == "waiting"
    assert found.notes[0].startswith("ranks 0-3 wait 20s in init_process_group; ")


def test_the_longest_waits_are_told_and_the_others_counted() -> None:
    scene = Scene(16)
    for index in range(8):
        scene.group(f"g{index}", [2 * index, 2 * index + 1])
        scene.waits([2 * index], "barrier", for_s=20 - index, usual_count=0, group=f"g{index}")
    notes = scene.settle(0).notes
    assert [note.split(" in ")[0] for note in notes] == [
        "rank 0 waits 20s", "rank 2 waits 19s", "rank 4 waits 18s", "ranks 6,8,10,12,14 wait",
    ]  # fmt: skip


def test_a_receive_that_nobody_is_seen_to_sit_in_is_no_wait() -> None:
    scene = Scene(2)
    scene.waits([0], "recv", for_s=20, sync=False, p2p=True, peer=1, usual_count=0)
    scene.actors[0].dump_error = "refused"
    assert scene.settle(0).health == "healthy"


def test_when_the_others_come_it_is_healthy_again() -> None:
    scene = first_barrier()
    scene.judge()
    scene.actors[1].pending.clear()
    scene.does([0, 2, 3], "barrier", ago=0.1)
    found = scene.settle(1)
    assert (found.health, found.notes) == ("healthy", ())


def test_nobody_reported_is_told_with_since_when() -> None:
    scene = Scene(4)
    scene.judge()
    scene.deafen(0)
    found = scene.settle(8)
    assert (found.health, exit_status(found)) == ("unreachable", 4)
    assert text(found)[:2] == [
        "train.py: UNREACHABLE for 8.0s; 0 of 4 ranks reporting; not 0-3, 1 host",
        "no rank that may still run is reporting: this is the last known state",
    ]


@pytest.mark.parametrize(("ago", "health"), [(1.0, "healthy"), (40.0, "undecided")])
def test_some_unreachable_is_healthy_only_as_long_as_the_others_issue_ops(
    ago: float, health: str
) -> None:
    scene = Scene(4, hosts=2)
    scene.does(range(4), "all_reduce", ago=ago)
    scene.judge()
    scene.deafen(1)
    found = scene.settle(8)
    assert (found.health, exit_status(found)) == (health, 4)
    assert ("(as far as reported)" in text(found)[0]) == (health == "healthy")
