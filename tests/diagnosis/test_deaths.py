"""Who died of itself, and who only followed."""

from __future__ import annotations

from typing import Any

import pytest

from diagnosis.scenes import Scene, frame, only, told
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.text.exit_status import exit_status

CLOSED = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
    "Connection closed by peer [127.0.0.1]:41231"
)
RESET = "Application timeout caused pair closure: Connection reset by peer"


def breaks(scene: Scene, ranks: list[int], ago: float = 0.8, text: str = CLOSED) -> None:
    for rank in ranks:
        scene.raises(rank, "RuntimeError", text, ago=ago)


@pytest.mark.parametrize(("kind", "text", "ago"), [
    ("RuntimeError", CLOSED, 0.8),
    ("RuntimeError", CLOSED, 1.2),
    ("RuntimeError", RESET, 0.9),
    ("torch.distributed.DistNetworkError", "Connection reset by peer", 0.9),
    ("torch.distributed.DistBackendError", "NCCL error: remote process exited", 0.9),
    ("ConnectionResetError", "[Errno 104] Connection reset by peer", 0.9),
])  # fmt: skip
def test_an_exception_is_named_and_its_peers_are_victims(kind: str, text: str, ago: float) -> None:
    scene = Scene(4)
    scene.raises(2, "ValueError", "loss is nan\nmore", ago=1.0)
    for rank in (0, 1, 3):
        scene.raises(rank, kind, text, ago=ago)
    found = scene.settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("dead", (2,), "0-1,3")
    assert verdict.why.cause == "exception"
    assert verdict.why.text == "ValueError: loss is nan at train.py:51 (train)"
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")
    assert found.health == "dead"
    assert exit_status(found) == 3


def test_an_exception_is_told_before_its_process_has_ended() -> None:
    scene = Scene(4)
    scene.raises(2, "ValueError", "loss is nan")
    scene.actors[2].exit_info = None
    scene.waits([0, 1, 3], "all_reduce", for_s=0.3)
    assert told(scene.judge().frame, "kind", "culprits") == ("dead", (2,))


def test_who_is_about_to_end_is_waited_for_by_nobodys_fault() -> None:
    """The last stage of a pipeline has left; that its process has ended is told much later."""
    scene = Scene(3, counts=True)
    scene.waits([0], "send", p2p=True, peer=1, tag=0, for_s=3.2)
    scene.does([1], "send", p2p=True, peer=2, tag=0, ago=3.1)
    scene.raises(1, "RuntimeError", CLOSED, ago=2.5)
    scene.actors[1].exit_info = None
    scene.kernel(1, "R")
    for _ in range(8):
        found = scene.judge().frame
        assert [verdict.culprits for verdict in found.verdicts] == [()]
        scene.pass_time(0.5)
    scene.ends(2, exit_code=0, clean=True, ago=7)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("dead", (2,), "exited")


@pytest.mark.parametrize("text", [
    "mat1 and mat2 shapes cannot be multiplied", "CUDA out of memory", "size mismatch for weight",
])  # fmt: skip
def test_a_runtime_error_of_ones_own_is_a_cause(text: str) -> None:
    scene = Scene(4)
    scene.raises(2, "RuntimeError", text)
    breaks(scene, [0, 1, 3])
    assert only(scene.settle()).culprits == (2,)


@pytest.mark.parametrize(("ending", "cause", "layer", "text"), [
    ({"signal": 9}, "signal", "unknown", "signal 9 (SIGKILL); nothing seen here says who sent it"),
    ({"signal": 15}, "signal", "unknown", "nothing seen here says who sent it"),
    ({"signal": 11}, "signal", "software", "signal 11 (SIGSEGV): a crash in native code"),
    ({"signal": 6}, "signal", "software", "SIGABRT"),
    ({"exit_code": 137}, "signal", "unknown", "signal 9 (SIGKILL)"),
    ({"signal": 9, "oom_kills": 1}, "oom", "software", "oom_kill rose"),
    ({"exit_code": 3}, "exit_status", "software", "exit status 3"),
    ({}, "unknown", "unknown", "cause unknown"),
])  # fmt: skip
@pytest.mark.parametrize("raise_", [True, False])
def test_how_it_ended_and_the_layer_if_that_is_known(
    ending: dict[str, int], cause: str, layer: str, text: str, raise_: bool
) -> None:
    scene = Scene(4)
    scene.ends(2, ago=1.0, **ending)  # type: ignore[arg-type]
    if raise_:
        breaks(scene, [0, 1, 3])
    else:
        scene.waits([0, 1, 3], "all_reduce", for_s=0.9)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("dead", (2,))
    assert (verdict.why.cause, verdict.why.layer) == (cause, layer)
    assert text in verdict.why.text


def test_ctrl_c_is_nobodys_fault() -> None:
    scene = Scene(4)
    for rank in range(4):
        scene.raises(rank, "KeyboardInterrupt", "", ago=2 - rank / 4)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("dead", (), "interrupted")
    assert verdict.headline == "ranks 0-3 were interrupted (ctrl+c)"
    assert verdict.next.startswith("nothing to look at in the code")


def test_what_the_launcher_ends_after_ctrl_c_is_a_victim() -> None:
    scene = Scene(4)
    scene.raises(0, "KeyboardInterrupt", "", ago=1.0)
    scene.ends(1, signal=2, ago=1.0)
    for rank in (2, 3):
        scene.ends(rank, signal=15, ago=1.05)
    verdict = only(scene.settle())
    assert (verdict.why.cause, fold(verdict.victims)) == ("interrupted", "2-3")
    assert verdict.headline.startswith("ranks 0-1 were interrupted (ctrl+c); ranks 2-3 ended")


@pytest.mark.parametrize("ending", [{"exit_code": 5}, {"exit_code": 5, "clean": True}])
def test_an_exit_status_is_a_failure_even_when_nobody_needs_the_rank(
    ending: dict[str, int],
) -> None:
    scene = Scene(4)
    scene.ends(0, ago=1, **ending)  # type: ignore[arg-type]
    for rank in (1, 2, 3):
        scene.ends(rank, exit_code=0, clean=True, ago=2)
    found = scene.settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("dead", (0,), "exit_status")
    assert "exit status 5" in verdict.headline
    assert (found.health, exit_status(found)) == ("dead", 3)


@pytest.mark.parametrize("text", [RESET, CLOSED])
def test_who_had_ended_before_the_launcher_ended_the_others_is_the_cause(text: str) -> None:
    scene = Scene(3)
    scene.raises(0, "torch.distributed.DistNetworkError", text, ago=0.9)
    for rank in (1, 2):
        scene.ends(rank, signal=15, ago=0.6)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("dead", (0,), "1-2")
    assert "DistNetworkError" in verdict.headline


def test_who_was_gone_before_the_launcher_ended_the_others_is_the_cause() -> None:
    scene = Scene(3)
    scene.ends(0, ago=0.9)
    for rank in (1, 2):
        scene.ends(rank, signal=15, ago=0.85)
    assert told(scene.settle(), "culprits", "why.cause") == ((0,), "unknown")


@pytest.mark.parametrize(("ago", "culprits"), [(0.5, ()), (5, ()), (6.5, (1, 2))])
def test_who_is_gone_for_a_moment_is_not_blamed_before_the_last_ops_are_read(
    ago: float, culprits: tuple[int, ...]
) -> None:
    """gloo aborts the victims of an op that does not fit; on a full host nobody sees the signal."""
    scene = Scene(4)
    scene.does(range(4), "broadcast", ago=ago + 1)
    for rank in (1, 2):
        scene.ends(rank, ago=ago)
    breaks(scene, [0, 3], ago=ago - 0.1)
    assert only(scene.settle(0)).culprits == culprits


def test_whose_connection_broke_while_others_are_not_seen_is_not_blamed() -> None:
    scene = Scene(4)
    scene.gone(3)
    scene.raises(0, "torch.distributed.DistNetworkError", RESET, ago=0.9)
    for rank in (1, 2):
        scene.ends(rank, signal=15, ago=0.6)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("undecided", ())
    assert "rank 0 ended" in verdict.headline


def test_who_raised_when_one_rank_was_ended_is_its_victim() -> None:
    scene = Scene(3)
    scene.raises(0, "RuntimeError", CLOSED, ago=0.9)
    scene.ends(1, signal=15, ago=0.87)
    scene.ends(2, signal=15, ago=0.6)
    verdict = only(scene.settle())
    assert (verdict.culprits, verdict.why.text.partition(";")[0]) == (
        (1,),
        "ended by signal 15 (SIGTERM)",
    )


def test_the_launchers_last_kill_is_no_cause() -> None:
    scene = Scene(4)
    scene.ends(2, exit_code=0, clean=True, ago=41)
    scene.does([0, 1, 3], "all_reduce", ago=42)
    breaks(scene, [0, 1], ago=40)
    scene.ends(3, signal=9, ago=9)
    assert told(scene.settle(), "culprits", "why.cause") == ((2,), "exited")


def test_ended_from_outside_altogether_blames_nobody() -> None:
    scene = Scene(4)
    for rank in range(4):
        scene.ends(rank, signal=15, ago=1.0)
    verdict = only(scene.settle())
    assert verdict.kind == "dead"
    assert verdict.culprits == ()
    assert "from outside" in verdict.headline


def test_the_first_own_cause_wins_over_an_abort() -> None:
    scene = Scene(4)
    scene.ends(0, signal=6, ago=0.9)
    scene.raises(2, "ValueError", "loss is nan", ago=1.0)
    breaks(scene, [1, 3])
    assert only(scene.settle()).culprits == (2,)


def test_two_independent_exceptions_stand_side_by_side() -> None:
    scene = Scene(4)
    scene.raises(1, "ValueError", "bad label", ago=1.1)
    scene.raises(2, "KeyError", "'x'", ago=1.0)
    breaks(scene, [0, 3])
    found = scene.settle()
    assert [verdict.culprits for verdict in found.verdicts] == [(1,), (2,)]


def test_the_same_exception_on_several_ranks_is_one_verdict() -> None:
    scene = Scene(4)
    for rank in range(4):
        scene.raises(rank, "FileNotFoundError", f"shard-{rank}", ago=1.0 - rank / 100)
    verdict = only(scene.settle())
    assert verdict.culprits == (0, 1, 2, 3)
    assert verdict.headline.startswith("ranks 0-3 died: FileNotFoundError")


def test_a_later_own_cause_is_a_consequence() -> None:
    scene = Scene(4)
    scene.raises(1, "ValueError", "bad label", ago=9)
    scene.raises(2, "AttributeError", "'NoneType' object", ago=4)
    breaks(scene, [0, 3], ago=8)
    assert only(scene.settle()).culprits == (1,)


def test_a_death_after_all_was_done_is_a_note() -> None:
    scene = Scene(4)
    for rank in (0, 1, 3):
        scene.ends(rank, exit_code=0, clean=True, ago=5)
    scene.ends(2, signal=6, ago=4)
    found = scene.settle()
    assert not found.verdicts
    assert "rank 2 died: signal 6 (SIGABRT)" in found.notes[0]


@pytest.mark.parametrize("how", [
    {"exit_code": 0, "clean": True}, {"exit_code": 0}, {"clean": True},
])  # fmt: skip
def test_an_early_exit_while_others_wait(how: dict[str, Any]) -> None:
    scene = Scene(4)
    scene.ends(2, ago=3, **how)
    scene.waits([0, 1, 3], "all_reduce", for_s=2)
    found = scene.settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("dead", (2,), "exited")
    assert fold(verdict.victims) == "0-1,3"
    assert "before all_reduce #8 of default_pg" in verdict.headline
    assert found.ranks[2].state == "done"
    assert exit_status(found) == 3


def test_most_have_left_and_one_goes_on_makes_two_parties() -> None:
    scene = Scene(4)
    for rank in (1, 2, 3):
        scene.ends(rank, exit_code=0, clean=True, ago=3)
    scene.waits([0], "barrier", for_s=2)
    verdict = only(scene.settle())
    assert verdict.culprits == ()
    assert verdict.parties == ((0,), (1, 2, 3))


@pytest.mark.parametrize(
    "text", ["Connection closed by peer [10.0.0.2]:41234", "Timed out waiting 1800000ms for recv"]
)
def test_a_rank_that_is_not_reported_is_not_blamed_for_an_old_number(text: str) -> None:
    scene = Scene(4, hosts=2)
    scene.does([0, 1, 2, 3], "all_reduce", ago=5)
    scene.hear()
    scene.deafen(1)
    scene.pass_time(4)
    scene.does([0, 1], "all_reduce", ago=1.3)
    for rank in (0, 1):
        scene.raises(rank, "RuntimeError", text)
    assert told(scene.settle(), "kind", "culprits") == ("undecided", ())


def test_the_job_was_ended_by_its_own_timeout() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=100)
    for rank in (0, 1, 3):
        scene.raises(rank, "RuntimeError", "Timed out waiting 1800000ms for recv operation")
    scene.ends(2, signal=15, ago=0.6)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("not_entered", (2,))
    assert fold(verdict.victims) == "0-1,3"


def test_an_exception_of_a_thread_ends_nothing() -> None:
    scene = Scene(4)
    scene.raises(2, "ValueError", "in a thread")
    actor = scene.actors[2]
    assert actor.exception is not None
    actor.exception = type(actor.exception)("ValueError", "in a thread", "loader", False, 1)
    actor.exit_info = None
    scene.at(2, frame("train.py:5"), active=True)
    assert not scene.settle().verdicts


def test_deaths_are_sorted_across_hosts_with_other_clocks() -> None:
    scene = Scene(4, hosts=4)
    scene.raises(3, "ValueError", "first", ago=3.0)
    scene.raises(0, "ValueError", "second, of another kind", ago=2.5)
    actor = scene.actors[0]
    assert actor.exception is not None
    breaks(scene, [1, 2], ago=2.8)
    assert scene.settle().verdicts[0].headline.startswith("ranks 0,3 died: ValueError: first")


def test_what_follows_from_a_death_is_no_verdict_of_its_own() -> None:
    scene = Scene(8)
    scene.group("1", [0, 1, 2, 3], "tp")
    scene.ends(2, signal=9, ago=20)
    scene.waits([0, 1, 3], "all_reduce", for_s=19, group="1")
    scene.waits([4, 5, 6, 7], "all_reduce", for_s=15)
    assert told(scene.settle(), "kind", "culprits") == ("dead", (2,))


def test_nobody_is_named_before_a_death_that_explains_it_may_be_told() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=0.4)
    breaks(scene, [0, 1], ago=0.3)
    assert told(scene.judge().frame, "kind", "culprits") == ("undecided", ())
    scene.ends(2, signal=6, ago=0.3)
    assert only(scene.settle()).culprits == (2,)


def test_a_rank_that_left_its_group_but_lives_on_is_named() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=1.3)
    breaks(scene, [0, 1, 3])
    scene.sleeps(2)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("not_entered", (2,))
    assert verdict.why.cause == "out_of_loop"
    assert "closed its connections while ranks 0-1,3" in verdict.headline


def test_an_early_exit_that_broke_some_while_others_still_wait_is_one_verdict() -> None:
    scene = Scene(4)
    scene.ends(2, exit_code=0, clean=True, ago=2.2)
    scene.does([1, 3], "all_reduce", ago=2.1)
    breaks(scene, [1, 3], ago=2.0)
    scene.waits([0], "all_reduce", for_s=2.1)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("dead", (2,), "0-1,3")
    assert verdict.headline.endswith("rank 0 waits, ranks 1,3 lost their connections to it")


def test_who_left_a_pipeline_early_is_named_by_the_message_that_it_did_not_take() -> None:
    scene = Scene(3)
    scene.ends(2, exit_code=0, clean=True, ago=2.2)
    scene.waits([1], "send", for_s=2.4, p2p=True, peer=2)
    scene.waits([0], "send", for_s=2.3, p2p=True, peer=1)
    for rank in (0, 1):  # what raises is over as well
        scene.actors[rank].pending.clear()
    breaks(scene, [1], ago=2.1)
    breaks(scene, [0], ago=1.9)
    for rank, ago in ((1, 2.0), (0, 1.8)):
        scene.ends(rank, exit_code=1, ago=ago)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("dead", (2,), "exited")
    assert fold(verdict.victims) == "0-1"


def test_unreachable_ranks_do_not_hide_who_left_with_a_message_not_taken() -> None:
    """Their old numbers lag, and prove nothing."""
    scene = Scene(6, hosts=2)
    scene.hear()
    scene.deafen(1)
    scene.pass_time(4)
    scene.does([0, 1, 2], "all_reduce", ago=2.6)
    scene.ends(2, exit_code=0, clean=True, ago=2.2)
    scene.waits([1], "send", for_s=2.4, p2p=True, peer=2)
    scene.actors[1].pending.clear()  # what raises is over as well
    breaks(scene, [1], ago=2.1)
    assert told(scene.settle(), "kind", "culprits", "why.cause") == ("dead", (2,), "exited")


def test_a_receive_left_behind_is_no_wait_for_somebody_who_left() -> None:
    scene = Scene(2)
    scene.waits([0], "recv", for_s=5, sync=False, p2p=True, peer=1)
    scene.actors[0].dump_error = "refused"
    scene.kernel(0, syscall="futex", wchan="futex_do_wait")
    scene.ends(1, exit_code=0, clean=True, ago=2)
    assert scene.settle().verdicts == ()


@pytest.mark.parametrize("ended", [False, True])
def test_after_a_timeout_those_who_waited_themselves_pass_the_blame_on(ended: bool) -> None:
    scene = Scene(4)
    scene.group("1", [0, 1], "tp")
    scene.group("2", [1, 3], "dp")
    scene.waits([0], "all_reduce", group="1", for_s=40)
    scene.waits([1], "all_reduce", group="2", for_s=40)
    scene.sleeps(3)
    scene.raises(0, "RuntimeError", "Timed out waiting 30000ms for recv", ago=2)
    if ended:
        for rank in (1, 2, 3):
            scene.ends(rank, signal=15, ago=1.0)
    assert told(scene.settle(), "kind", "culprits") == ("not_entered", (3,))


def test_who_left_the_group_is_named_once_though_some_still_wait_for_it() -> None:
    scene = Scene(4)
    scene.does([0, 3], "all_reduce", ago=5.0)
    breaks(scene, [0, 3], ago=4.9)
    scene.waits([1], "all_reduce", for_s=5.0)
    scene.sleeps(2)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("not_entered", (2,), "0-1,3")
    assert verdict.why.cause == "out_of_loop"
    assert verdict.headline.endswith("while ranks 0,3 still had ops to do; rank 1 waits")
