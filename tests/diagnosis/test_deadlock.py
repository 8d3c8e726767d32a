"""Deadlocks: who is odd among ranks that wait for each other, where numbers do not decide."""

from __future__ import annotations

from diagnosis.scenes import LOCK, MAIN, Scene, frame, only, told
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Verdict
from frtop_tui.text.exit_status import exit_status


def test_one_against_three_that_need_each_other_is_the_odd_one() -> None:
    scene = Scene(4)
    scene.group("checkpoint", range(4), "checkpoint")
    scene.waits([0, 2, 3], "all_reduce", for_s=10)
    scene.waits([1], "barrier", for_s=10, group="checkpoint")
    found = scene.settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("deadlock", (1,))
    assert verdict.parties == ((0, 2, 3), (1,))
    assert fold(verdict.victims) == "0,2-3"
    assert "only rank 1 went elsewhere" in verdict.why.text
    assert verdict.next.startswith("compare the calls of rank 1 with those of rank 0")
    assert exit_status(found) == 3


def test_most_are_not_right_where_the_one_is_awaited_by_few() -> None:
    """Rank 0 waits for rank 1 in their own group; that the others do not is no sign."""
    scene = Scene(4)
    scene.group("data", [0, 1], "data")
    scene.waits([0], "all_reduce", for_s=10, group="data")
    scene.waits([1, 2, 3], "all_reduce", for_s=10)
    assert told(scene.settle(), "kind", "culprits") == ("deadlock", ())


def test_who_has_not_called_new_group_is_suspected_in_time() -> None:
    scene = Scene(4)
    scene.in_pseudo([0, 1, 2], "new_group", 10)
    scene.waits([3], "all_reduce", for_s=10)
    found = scene.settle()
    # Of the group may be those only that make it, and slowly.
    assert (found.verdicts, found.health) == ((), "waiting")
    verdict = only(scene.settle(22))
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("deadlock", (3,), "suspect")
    assert any(
        "it is not known which ranks have to call new_group" in text for text in verdict.missing
    )


def posted_early(source: str) -> Scene:
    """Rank 0 awaits rank 1's message; that has posted a receive from it, and sleeps at a line."""
    scene = Scene(2)
    scene.waits([0], "recv", for_s=10, p2p=True, peer=1)
    scene.waits([1], "recv", for_s=10, p2p=True, peer=0, sync=False)
    scene.at(1, frame("train.py:40", source=source))
    scene.kernel(1, "S", "futex", "futex_wait_queue")
    return scene


def test_who_waits_at_a_queue_in_c_is_in_no_deadlock_for_a_receive_posted_early() -> None:
    verdict = only(posted_early("batch = ready.get()").settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (1,), "lock")
    assert verdict.confidence == "confirmed"


def test_a_deadlock_that_rests_on_a_receive_nobody_is_seen_in_is_no_more_than_suspected() -> None:
    verdict = only(posted_early("engine.run(batch)").settle(10))
    assert (verdict.kind, verdict.culprits) == ("deadlock", ())
    assert verdict.confidence == "suspect"
    assert "rank 1 may wait in something else: no stack shows where" in verdict.missing


def test_a_deadlock_of_receives_that_are_sat_in_is_confirmed() -> None:
    assert only(posted_early("posted.wait()").settle()).confidence == "confirmed"


def test_a_thread_in_an_op_of_its_own_need_not_be_what_the_main_thread_waits_for() -> None:
    scene = Scene(4)
    scene.group("statistics", range(4), "statistics")
    scene.waits([0, 2, 3], "all_reduce", for_s=10)
    scene.waits([1], "all_reduce", for_s=10, group="statistics", thread=MAIN + 7)
    scene.at(1, *LOCK)
    verdict = only(scene.settle(10))
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("deadlock", (1,), "suspect")
    assert "rank 1 may wait for a thread other than the one in the op" in verdict.missing


def different_tags(backend: str) -> tuple[Verdict, ...]:
    scene = Scene(2, backend=backend)
    scene.waits([0], "send", for_s=10, p2p=True, peer=1, tag=7)
    scene.waits([1], "recv", for_s=10, p2p=True, peer=0, tag=3)
    return scene.settle(10).verdicts


def test_a_send_and_a_receive_of_different_tags_never_meet() -> None:
    (verdict,) = different_tags("gloo")
    assert (verdict.kind, verdict.parties) == ("deadlock", ((0,), (1,)))
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")
    assert "rank 0 sends with tag 7 what rank 1 receives with tag 3" in verdict.why.text
    assert verdict.next == "give a send and its receive the same tag"


def test_tags_are_told_of_receives_in_a_deadlock_whose_sends_are_pending() -> None:
    scene = Scene(2)
    scene.waits([0, 1], "send", for_s=11, p2p=True, sync=False, peer=1, tag=7)
    scene.actors[1].pending.clear()
    scene.waits([0], "recv", for_s=10, p2p=True, peer=1, tag=3)
    scene.waits([1], "recv", for_s=10, p2p=True, peer=0, tag=3)
    verdict = only(scene.settle(10))
    assert (verdict.kind, verdict.parties) == ("deadlock", ((0,), (1,)))
    assert "rank 0 sends with tag 7 what rank 1 receives with tag 3" in verdict.why.text


def test_nccl_knows_no_tags() -> None:
    assert {verdict.kind for verdict in different_tags("nccl")} == {"undecided"}


def test_a_message_sent_early_does_not_tell_that_its_sender_is_there() -> None:
    """Of gloo's asynchronous sends it is known that they are over only once they are waited for.

    Both halves are there, and nothing is missing: it is not what rank 0 waits for.
    """
    scene = Scene(3)
    scene.waits([0], "recv", for_s=10, p2p=True, peer=1)
    scene.waits([1], "send", for_s=12, p2p=True, peer=0, sync=False)
    scene.waits([1], "recv", for_s=10, p2p=True, peer=2)
    scene.sleeps(2)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "sleeping")
    assert verdict.confidence == "confirmed"
