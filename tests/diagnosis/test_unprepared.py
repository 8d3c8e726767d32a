"""Nobody is in any op: hung only if something outside of the job keeps all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from diagnosis.absences import (
    computes,
    holds_gil,
    reads_file,
    sleeps,
    stopped,
    waits_for_key,
    waits_for_lock,
    waits_for_socket,
)
from diagnosis.scenes import LOADER, SECOND, Scene, frame, one_sleeps, only, told
from diagnosis.unprepared import Unprepared
from frtop_probe import wire
from frtop_tui.diagnosis.health import as_far_as_seen
from frtop_tui.job.model import HostView
from frtop_tui.text.exit_status import exit_status

LONG = 30.0
"""Enough looks for everything that can be said a minute after the last op."""


Play = Callable[[Scene, int], None]


def stands(*frames: wire.TraceFrame, kernel: tuple[str, ...] = ()) -> Play:
    def play(scene: Scene, rank: int) -> None:
        scene.at(rank, *frames)
        if kernel:
            scene.kernel(rank, *kernel)

    return play


def fetches_from(*worker: str, children: bool = True) -> Play:
    def play(scene: Scene, rank: int) -> None:
        scene.fetches(rank, worker=2, pid=90112 + rank, for_s=50)
        if not children:
            scene.actors[rank].children.clear()
        scene.worker(rank, 90112 + rank, *worker)

    return play


def loads_itself(scene: Scene, rank: int) -> None:
    scene.fetches(rank, worker=-2, workers=0, for_s=50)
    scene.at(rank, frame("data.py:12", "__getitem__"), frame(f"{LOADER}:788", "_next_data"))
    scene.kernel(rank, "D", "read", "folio_wait_bit", "/nfs/shard-7")


def has_many_streams(scene: Scene, rank: int) -> None:
    scene.fetches(rank, worker=-1, workers=2, for_s=50)
    scene.worker(rank, 90112, "S", "recvfrom", "socket:[12]")
    scene.worker(rank, 90113, "S", "recvfrom", "socket:[13]")


def replays(scene: Scene, rank: int) -> None:
    scene.fetches(rank, worker=-2, workers=0, for_s=50)
    scene.at(rank, frame("/usr/lib/python3.11/queue.py:171", "get"), frame("replay.py:9"))


def fetches_something(scene: Scene, rank: int) -> None:
    scene.fetches(rank, for_s=100)


fetches = fetches_from("D", "read", "/data/shard-0412", children=False)
fetches_from_stopped = fetches_from("T", "")
streams = fetches_from("S", "recvfrom", "socket:[12]")
waits_for_build = stands(
    frame("/opt/lib/torch/utils/file_baton.py:50", "wait"),
    frame("train.py:4"),
    kernel=("S", "clock_nanosleep", "hrtimer_nanosleep"),
)
builds = stands(
    frame("/usr/lib/python3.11/subprocess.py:1264", "wait"),
    frame("train.py:4"),
    kernel=("S", "wait4", "do_wait"),
)
READS_CHANNEL = stands(
    frame("serve.py:9", source="request = channel.read()"),
    kernel=("S", "recvfrom", "tcp_recvmsg", "socket:[123]"),
)
IN_FILES = {
    "os.fsync(file.fileno())": ("D", "fsync", "folio_wait_bit", "/ckpt/part-0"),
    "file.write(part)": ("D", "write", "balance_dirty_pages", "/ckpt/part-0"),
    "with path.open('wb') as file:": ("D", "close", "nfs_wait_bit", "/ckpt/part-0"),
    "old.unlink()": ("D", "unlink", "nfs_wait_bit"),
    "state = file.read()": ("D",),  # a page of it
}
COPIES_FILE = stands(
    frame("/usr/lib/python3.11/shutil.py:139", "_fastcopy_sendfile"),
    kernel=("D", "sendfile", "nfs_wait_bit"),
)


def everybody(play: Play, ranks: int = 4, *, ago: float = 60.0) -> Scene:
    """All alike, so long after the last op."""
    scene = Scene(ranks)
    scene.does(range(ranks), "all_reduce", ago=ago)
    for rank in range(ranks):
        play(scene, rank)
    return scene


@pytest.mark.parametrize(("play", "cause", "text"), [
    (fetches, "dataloader", "/data/shard-0412"),
    (fetches_from_stopped, "dataloader", "DataLoader worker 2"),
    (loads_itself, "dataloader", "/nfs/shard-7"),
    (reads_file, "file_io", "/nfs/vocabulary"),
    (waits_for_key, "store", "train.py:33"),
    (waits_for_build, "lock", "C++ extension"),
    (stopped, "stopped", "SIGSTOP"),
])  # fmt: skip
def test_all_are_kept_for_good(play: Play, cause: str, text: str) -> None:
    found = everybody(play).settle(LONG)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("not_entered", (0, 1, 2, 3))
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")
    assert verdict.why.cause == cause
    assert text in verdict.why.text
    assert verdict.headline.startswith("no rank is in an op, and none has been issued for 1m3")
    assert (found.health, found.notes, exit_status(found)) == ("hung", (), 3)


@pytest.mark.parametrize(("play", "cause"), [
    (waits_for_lock, "lock"),
    (waits_for_socket, "socket"),
    (stands(frame("serve.py:9", source="work_store.get(timeout=60)")), "store"),
    (streams, "dataloader"),
    (fetches_from("S", "clock_nanosleep"), "dataloader"),
    (fetches_from("S", "futex"), "dataloader"),
    (fetches_from("D", "fallocate"), "dataloader"),
    (has_many_streams, "dataloader"),
    (fetches_something, "dataloader"),
    (replays, "dataloader"),
    (holds_gil, "gil"),
    (READS_CHANNEL, "file_io"),
    (COPIES_FILE, "file_io"),
    *((stands(frame("save.py:9", source=line), kernel=kernel), "file_io")
      for line, kernel in IN_FILES.items()),
])  # fmt: skip
def test_all_wait_for_what_may_come(play: Play, cause: str) -> None:
    found = everybody(play).settle(30)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("not_entered", (0, 1, 2, 3))
    assert (verdict.confidence, verdict.progress) == ("suspect", "unknown")
    assert verdict.why.cause == cause
    assert verdict.headline.endswith(
        "none has been issued for 1m30s: ranks 0-3 stay where they are"
    )
    assert (found.health, exit_status(found)) == ("held up", 5)


def test_who_sleeps_may_poll() -> None:
    found = everybody(sleeps).settle(30)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, found.health) == ("undecided", (), "undecided")
    assert verdict.headline == (
        "no rank is in an op, and none has been issued for 1m30s;"
        " ranks 0-3: MainThread sleeps at train.py:33 (train) `time.sleep(3600)`"
    )
    assert exit_status(found) == 4


def test_who_works_is_well() -> None:
    found = everybody(computes).settle(30)
    assert (found.verdicts, found.health, exit_status(found)) == ((), "healthy", 0)
    assert "none has been issued for 1m30s; ranks 0-3: MainThread runs at " in found.notes[0]


def test_one_that_builds_is_whom_the_others_wait_for() -> None:
    scene = everybody(waits_for_build)
    builds(scene, 2)
    verdict = only(scene.settle(LONG))
    assert (verdict.kind, verdict.culprits) == ("undecided", ())
    assert verdict.evidence[1].startswith("rank 2: MainThread waits for a process that it started")


@pytest.mark.parametrize("play", [waits_for_build, reads_file])
def test_all_are_kept_before_their_first_group(play: Play) -> None:
    scene = Unprepared(4, begun=0)
    for actor in scene.actors.values():
        actor.groups.clear()
        play(scene, actor.rank)
    scene.started_s = 20
    early = scene.settle(5)
    assert (early.verdicts, early.health) == ((), "starting")
    scene.started_s = 90
    assert told(scene.settle(LONG), "kind", "culprits") == ("not_entered", (0, 1, 2, 3))


def test_until_all_were_looked_at_it_is_open() -> None:
    found = everybody(reads_file).settle(3)
    assert found.verdicts == ()
    assert (found.health, exit_status(found)) == ("waiting", 4)


@pytest.mark.parametrize("play", [sleeps, waits_for_lock, streams])
def test_one_of_another_kind_may_be_whom_all_wait_for(play: Play) -> None:
    scene = everybody(reads_file)
    play(scene, 2)
    found = scene.settle(30)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, found.health) == ("undecided", (), "undecided")
    assert verdict.headline.endswith("; ranks 0-3 are at different places")
    assert verdict.evidence[0].startswith("ranks 0-1,3: MainThread is in a file operation at train")


def test_how_long_one_that_works_may_take_is_not_known() -> None:
    scene = everybody(reads_file)
    computes(scene, 2)
    found = scene.settle(30)
    assert (found.verdicts, found.health, exit_status(found)) == ((), "waiting", 4)
    assert "; rank 2: MainThread runs at train.py:35" in found.notes[0]


def test_who_is_kept_by_two_things_is_told_for_each() -> None:
    scene = everybody(reads_file)
    fetches(scene, 2)
    found = scene.settle(LONG)
    causes = {verdict.culprits: verdict.why.cause for verdict in found.verdicts}
    assert causes == {(0, 1, 3): "file_io", (2,): "dataloader"}


def test_who_waits_for_a_key_is_not_blamed_while_somebody_is_elsewhere() -> None:
    scene = everybody(waits_for_key)
    reads_file(scene, 2)
    verdict = only(scene.settle(LONG))
    assert (verdict.culprits, verdict.why.cause) == ((2,), "file_io")
    assert "ranks 0-1,3 also in no op: at a key of the store" in verdict.evidence


def test_it_takes_a_minute() -> None:
    scene = everybody(reads_file, ago=10)
    found = scene.settle(19)
    assert (found.verdicts, found.notes, found.health) == ((), (), "healthy")
    found = scene.settle(29)
    assert (found.verdicts, found.health) == ((), "waiting")
    assert only(scene.settle(3)).culprits == (0, 1, 2, 3)


def test_a_step_or_a_fetch_is_a_sign_of_life_as_well() -> None:
    scene = everybody(reads_file)
    scene.actors[3].step_at = scene.now - 5
    found = scene.settle(20)
    assert (found.verdicts, found.notes) == ((), ())


def test_a_step_of_one_of_very_many_is_a_sign_of_life_as_well() -> None:
    scene = everybody(reads_file, 66)
    for _ in range(40):
        scene.actors[51].step_at = scene.now
        found = scene.judge().frame
        scene.pass_time(0.5)
    assert found.verdicts == ()


def test_who_reads_on_is_not_hung() -> None:
    scene = everybody(fetches)
    for step in range(60):
        scene.actors[1].children[0] = wire.Process(
            90113, "D", "pt_data_worker", "", "read", "/data/shard-0412",
            io_bytes=step * 1_000_000,
        )  # fmt: skip
        found = scene.judge().frame
        scene.pass_time(0.5)
    assert (found.verdicts, found.health) == ((), "waiting")


def test_nobody_is_judged_while_somebody_is_not_seen() -> None:
    scene = Scene(4, hosts=2)
    for rank in range(4):
        reads_file(scene, rank)
    scene.hear()
    scene.deafen(1)
    scene.pass_time(20)
    assert scene.settle(LONG).verdicts == ()


def test_before_the_first_op_it_lasts_since_the_start() -> None:
    scene = Scene(4, begun=0)
    for rank in range(4):
        waits_for_build(scene, rank)
    found = scene.settle(LONG)
    assert (only(found).culprits, found.health) == ((0, 1, 2, 3), "hung")
    assert "none has been issued for 10m30s" in only(found).headline


def test_a_wait_before_the_first_op_is_no_older_than_its_process() -> None:
    """The clock of a host counts from its boot."""
    scene = Scene(4, begun=0)
    scene.started_s = 45.0
    for rank in range(4):
        reads_file(scene, rank)
    found = scene.settle(0)
    assert (found.health, found.now_ns - found.since_ns) == ("waiting", 45 * SECOND)


def test_who_has_left_is_not_waited_for() -> None:
    scene = everybody(reads_file)
    scene.ends(0, clean=True, ago=50)
    verdict = only(scene.settle(LONG))
    assert (verdict.kind, verdict.culprits) == ("stuck", (1, 2, 3))
    assert verdict.headline == "rank 0 has left, and ranks 1-3 do not end"


def test_a_disagreement_found_before_does_not_hide_it() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=60)
    scene.does([2], "all_reduce", ago=60, reduce="max")
    for rank in range(4):
        reads_file(scene, rank)
    found = scene.settle(2 * LONG)
    assert [verdict.kind for verdict in found.verdicts] == ["mismatch", "not_entered"]


def test_of_very_many_some_from_everywhere_are_looked_at() -> None:
    scene = everybody(reads_file, 66)
    verdict = only(scene.settle(LONG))
    assert verdict.culprits == tuple(range(0, 66, 2))
    assert all(scene.frame().ranks[rank].snapshot is not None for rank in verdict.culprits)
    assert "33 more ranks in no op, not looked at" in verdict.evidence


def test_of_very_many_one_that_was_not_looked_at_may_have_to_set_a_key() -> None:
    assert told(everybody(waits_for_key, 66).settle(30), "kind", "culprits") == ("undecided", ())


def test_some_of_whom_no_look_comes_are_not_named() -> None:
    scene = everybody(reads_file, 8)
    for _ in range(60):
        scene.hear()
        judgement = scene.engine.judge(scene.frame())
        for wanted in judgement.look_requests:
            if wanted.key <= 6:
                look = scene.look_of(scene.actors[wanted.key - 1])
                answer = wire.SnapshotResponse(1, wanted.host, (look,))
                scene.state.apply_snapshots(wanted.host, answer)
        scene.pass_time(0.5)
    verdict = only(judgement.frame)
    assert (verdict.kind, verdict.missing) == ("undecided", ("ranks 6-7: could not be looked at",))


def test_who_rests_is_looked_at_seldom() -> None:
    scene = everybody(waits_for_lock)
    asked = 0
    for _ in range(240):
        asked += len(scene.judge().look_requests)
        scene.pass_time(0.5)
    assert 4 * 4 <= asked <= 4 * 6  # of each rank a first look, and one every half a minute


def test_a_fetch_that_takes_long_each_time_is_none_of_its_own() -> None:
    scene = everybody(fetches)
    for second in range(200):
        if second % 45 == 0:
            for rank in range(4):
                scene.fetches(rank, worker=2, pid=90112 + rank, for_s=0)
        assert scene.judge().frame.verdicts == ()
        scene.pass_time(1)


@pytest.mark.parametrize("every_s", [5, 30])
def test_what_other_processes_of_it_do_now_and_then_is_no_progress(every_s: int) -> None:
    scene = everybody(reads_file)
    healths = []
    for second in range(120):
        child = wire.Process(95000, "S", "wandb", io_bytes=40_000 * (second // every_s))
        scene.actors[0].children = [child]
        healths.append(scene.judge().frame.health)
        scene.pass_time(1)
    assert set(healths[30:]) == {"hung"}


@pytest.mark.parametrize(("mb_per_s", "hung"), [(0, True), (5, False)])
def test_one_long_read_makes_memory_grow(mb_per_s: int, *, hung: bool) -> None:
    scene = everybody(reads_file)
    for second in range(90):
        for rank in range(4):
            scene.actors[rank].process = wire.Process(
                1000 + rank, "D", "python", "nfs_wait_bit", "read", "/nfs/state.pt",
                rss=second * mb_per_s * 1_000_000,
            )  # fmt: skip
        found = scene.judge().frame
        scene.pass_time(1)
    assert (found.health == "hung", bool(found.verdicts)) == (hung, hung)


def test_one_that_was_elsewhere_in_between_begins_it_anew() -> None:
    scene = everybody(reads_file)
    scene.settle(18)
    sleeps(scene, 2)
    scene.settle(8)
    reads_file(scene, 2)
    assert scene.settle(32).verdicts == ()
    assert scene.settle(25).health == "hung"


def test_storage_that_goes_while_nobody_was_in_an_op_is_seen() -> None:
    scene = everybody(computes)
    scene.settle(40)
    for rank in range(4):
        reads_file(scene, rank)
    assert scene.settle(75).health == "hung"


def test_looks_of_an_earlier_wait_do_not_hold_it_up() -> None:
    scene = one_sleeps()
    assert scene.settle(6).health == "hung"
    for actor in scene.actors.values():
        actor.pending.clear()
    scene.does(range(4), "all_reduce", number=9, ago=0.1)
    for rank in range(4):
        reads_file(scene, rank)
    assert scene.settle(63).health == "hung"


@pytest.mark.parametrize(("some", "health"), [((0, 1, 2, 3), "healthy"), ((2,), "waiting")])
def test_it_is_over_when_they_go_on(some: tuple[int, ...], health: str) -> None:
    scene = everybody(reads_file)
    assert scene.settle(LONG).health == "hung"
    for rank in some:
        computes(scene, rank)
    assert scene.settle(12).health == health
    scene.does(range(4), "all_reduce", ago=0.1)
    found = scene.settle(1)
    assert (found.health, found.notes) == ("healthy", ())


def test_when_it_was_ended_it_is_told_as_what_was_before() -> None:
    scene = everybody(reads_file)
    scene.settle(LONG)
    for rank in range(4):
        scene.ends(rank, signal=15, ago=0.2)
    verdict = scene.settle(3).verdicts[0]
    assert verdict.headline.startswith("no rank was in an op, and none had been issued for")
    assert ": ranks 0-3 made no progress; then ranks 0-3" in verdict.headline


def paused(scene: Scene, play: Play, for_s: float) -> None:
    """A pause of the job that long, in which all do the same; then it goes on."""
    for rank in range(4):
        play(scene, rank)
    scene.settle(for_s)
    scene.does(range(4), "all_reduce", ago=0.1)
    scene.settle(1)


@pytest.mark.parametrize("play", [waits_for_lock, sleeps])
def test_a_pause_like_an_earlier_one_is_none(play: Play) -> None:
    """An evaluation or a checkpoint, each epoch: unusual is what lasts twice as long."""
    scene = everybody(play, ago=1)
    paused(scene, play, 80)
    for rank in range(4):
        play(scene, rank)
    found = scene.settle(150)
    assert (found.verdicts, found.health, exit_status(found)) == ((), "waiting", 4)
    assert len(scene.settle(30).verdicts) == 1


def test_a_pause_that_the_ops_of_the_ranks_show_is_an_earlier_one() -> None:
    """frtop came late; their last ops reach back to the one before."""
    scene = Scene(4, ago=400)
    scene.does(range(4), "all_reduce", ago=200)
    scene.does(range(4), "all_reduce", ago=199.9)
    for rank in range(4):
        waits_for_lock(scene, rank)
    found = scene.settle(60)
    assert (found.verdicts, found.health) == ((), "waiting")
    assert len(scene.settle(180).verdicts) == 1


def test_what_came_before_the_first_op_is_no_pause_of_the_job() -> None:
    """A start takes as long as it takes, once."""
    scene = Scene(4, begun=0)
    paused(scene, sleeps, 100)
    for rank in range(4):
        waits_for_lock(scene, rank)
    assert scene.settle(75).health == "held up"


def test_ranks_that_were_hardly_looked_at_yet_are_not_called_healthy() -> None:
    """On a starved host seconds pass between looks, and one does not show whether an op lasts."""
    scene = Unprepared(2)
    scene.settle(1)
    frame = scene.frame()
    for searching, health in ((True, "undecided"), (False, "healthy")):
        hosts = (HostView("node0", "reporting", searching=searching),)
        assert as_far_as_seen(replace(frame, hosts=hosts), "healthy") == health
