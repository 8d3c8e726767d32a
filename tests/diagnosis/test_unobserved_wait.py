"""Beside a transport that nobody observes: who may wait in it is neither at fault nor healthy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from diagnosis.absences import reads_file, sleeps, waits_for_lock
from diagnosis.scenes import MAIN, SECOND, Scene, frame, only, three_wait
from diagnosis.unprepared import Unprepared
from frtop_probe import wire
from frtop_tui.diagnosis.evidence.unobserved_wait import unobserved_wait
from frtop_tui.text.exit_status import exit_status

Play = Callable[[Scene, int], None]
DEEP_EP = "/venv/lib/python3.11/site-packages/deep_ep/buffer.py"
SHM = "/venv/lib/python3.11/site-packages/vllm/distributed/device_communicators/shm_broadcast.py"


def synchronizes(scene: Scene, rank: int) -> None:
    synchronize = frame("/venv/torch/cuda/__init__.py:1085", "synchronize")
    scene.at(rank, synchronize, frame("decode.py:40"), active=True)
    scene.kernel(rank, "R", "running")


def takes_item(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("decode.py:41", source="token = logits.argmax().item()"), active=True)
    scene.kernel(rank, "R", "running")


def asks_event(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("decode.py:42", source="while not done.query():"), active=True)
    scene.actors[rank].owns_gil = True
    scene.kernel(rank, "R", "running")


def spins_in_c(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("decode.py:43", source="graph.replay(batch)"), active=True)
    scene.kernel(rank, "R", "running")


def sleeps_in_c(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("decode.py:44", source="library.exchange(batch)"))


def polls_in_c(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("decode.py:44", source="library.exchange(batch)"))
    scene.kernel(rank, "S", "clock_nanosleep", "hrtimer_nanosleep")


def in_the_driver(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("decode.py:44", source="library.exchange(batch)"))
    scene.kernel(rank, "D", "ioctl", "uvm_wait", "/dev/nvidia-uvm")


def in_backward(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("/venv/torch/autograd/graph.py:829", "_engine_run_backward"))


def in_its_own_code(scene: Scene, rank: int) -> None:
    scene.at(rank, frame(f"{DEEP_EP}:300", "dispatch"), frame("decode.py:50"), active=True)
    scene.actors[rank].owns_gil = True
    scene.kernel(rank, "R", "running")


def polls_in_its_own_code(scene: Scene, rank: int) -> None:
    poll = frame(f"{SHM}:90", "spin", "time.sleep(self.wait_sleep_s)")
    scene.at(rank, poll, frame("decode.py:51"))
    scene.kernel(rank, "S", "clock_nanosleep")


def holds_gil_in_c(scene: Scene, rank: int) -> None:
    spins_in_c(scene, rank)
    scene.actors[rank].owns_gil = True
    scene.silent(rank, 20)


def waits_for_its_thread(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("/usr/lib/python3.11/threading.py:1112", "join"), frame("decode.py:60"))
    synchronize = frame("/venv/torch/cuda/__init__.py:1085", "synchronize")
    worker = wire.ThreadStack(MAIN + 1, 5000, "worker", True, False, (synchronize,))
    scene.actors[rank].other_threads = (worker,)


OPEN: tuple[Play, ...] = (
    synchronizes, takes_item, asks_event, spins_in_c, sleeps_in_c, polls_in_c, in_the_driver,
    in_backward, in_its_own_code, polls_in_its_own_code, holds_gil_in_c, waits_for_its_thread,
)  # fmt: skip


def is_stopped(scene: Scene, rank: int) -> None:
    spins_in_c(scene, rank)
    scene.kernel(rank, "T")
    scene.silent(rank, 20)


def reads_in_c(scene: Scene, rank: int) -> None:
    scene.at(rank, frame("train.py:44", source="library.fetch(batch)"))
    scene.kernel(rank, "D", "read", "nfs_wait_bit", "/nfs/vocabulary")


def loads(scene: Scene, rank: int) -> None:
    scene.fetches(rank, worker=2, pid=90112)


def runs_python(scene: Scene, rank: int) -> None:
    spins_in_c(scene, rank)
    scene.actors[rank].owns_gil = True


def another_thread_holds_gil(scene: Scene, rank: int) -> None:
    sleeps_in_c(scene, rank)
    other = wire.ThreadStack(MAIN + 1, 5000, "w", False, True, (frame("ext.py:7"),))
    scene.actors[rank].other_threads = (other,)
    scene.silent(rank, 20)


DEFINITE: tuple[tuple[Play, str], ...] = (
    (sleeps, "sleeping"), (is_stopped, "stopped"), (waits_for_lock, "lock"),
    (reads_file, "file_io"),
    (reads_in_c, "file_io"), (loads, "dataloader"), (runs_python, "computing"),
    (another_thread_holds_gil, "gil"),
)  # fmt: skip


def one_awaited(play: Play, *, beside: bool = True, scene: Scene | None = None) -> Scene:
    """Ranks 0, 1 and 3 wait in an op that rank 2 has not entered."""
    scene = scene or Scene(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    play(scene, 2)
    if beside:
        scene.beside([2], "DeepEP")
    return scene


@pytest.mark.parametrize("play", OPEN)
def test_who_may_wait_beside_a_transport_is_no_root(play: Play) -> None:
    found = one_awaited(play).settle(6)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("undecided", (), "unobserved")
    assert verdict.headline.startswith(
        "ranks 0-1,3 wait in all_reduce #8 of default_pg;"
        " rank 2 is in a wait that frtop does not observe, beside DeepEP"
    )
    assert "its peers may wait for it" in verdict.why.text
    assert (found.health, exit_status(found)) == ("undecided", 4)
    assert "DeepEP: module deepep is imported" in verdict.evidence
    assert "--native --pid 1002" in verdict.next
    assert "engine's own log" in verdict.next


@pytest.mark.parametrize("play", OPEN[::3])
def test_without_such_a_transport_it_is_named(play: Play) -> None:
    verdict = only(one_awaited(play, beside=False).settle(6))
    assert (verdict.kind, verdict.culprits) == ("not_entered", (2,))


@pytest.mark.parametrize(("play", "cause"), DEFINITE)
def test_a_definite_cause_is_named_beside_it_as_well(play: Play, cause: str) -> None:
    verdict = only(one_awaited(play).settle(6))
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), cause)


@pytest.mark.parametrize("play", [synchronizes, sleeps_in_c])
def test_nor_is_it_without_a_recorder(play: Play) -> None:
    verdict = only(one_awaited(play, scene=Unprepared(4)).settle(40))
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("undecided", (), "unobserved")


def test_one_that_sleeps_is_named_and_the_one_beside_a_transport_is_not() -> None:
    scene = Scene(4)
    scene.waits([0, 1], "all_reduce", for_s=10)
    scene.sleeps(2)
    synchronizes(scene, 3)
    scene.beside([3], "pynccl", "DeepEP")
    verdict = only(scene.settle(6))
    assert (verdict.culprits, verdict.why.cause) == ((2,), "sleeping")
    expected = "rank 3 is in a wait that frtop does not observe, beside pynccl, DeepEP"
    assert expected in verdict.evidence
    assert "what rank 3 issues beside pynccl, DeepEP" in verdict.missing


def test_an_op_that_it_is_known_to_be_blocked_in_leads_on() -> None:
    scene = Scene(4)
    scene.group("a", [0, 2], "a")
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.waits([2], "barrier", for_s=10, group="a")
    scene.beside(range(4), "DeepEP")
    assert only(scene.settle(6)).kind == "deadlock"


def test_a_device_wait_is_not_for_a_pending_op_of_the_host() -> None:
    """Rank 2 has posted an op early: who has not entered that one is not needed by anybody."""
    scene = Scene(4)
    scene.group("early", [2, 3], "early")
    scene.waits([2], "broadcast", for_s=10, group="early", sync=False)
    scene.waits([0, 1], "all_reduce", for_s=10)
    synchronizes(scene, 2)
    scene.sleeps(3)
    scene.beside([2], "DeepEP")
    (verdict,) = scene.settle(6).verdicts
    assert (verdict.culprits, verdict.op and verdict.op.kind) == ((3,), "all_reduce")


def standing(play: Play, *, scene: Scene | None = None) -> Scene:
    """Nobody is in an op of c10d, and all are in waits beside a transport."""
    scene = scene or Scene(4)
    for rank in scene.actors:
        play(scene, rank)
    scene.beside(scene.actors, "pynccl")
    return scene


@pytest.mark.parametrize("play", [synchronizes, sleeps_in_c])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_job_that_stays_in_such_waits_is_not_healthy(play: Play, prepared: bool) -> None:
    found = standing(play, scene=Scene(4) if prepared else Unprepared(4)).settle(50)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("undecided", (), "unobserved")
    assert verdict.headline.startswith("ranks 0-3 are in waits that frtop does not observe")
    assert (found.health, verdict.confidence, exit_status(found)) == ("undecided", "confirmed", 4)


def test_it_takes_as_long_as_a_wait_of_unknown_length_may_take() -> None:
    scene = standing(synchronizes)
    found = scene.settle(25)
    assert (found.verdicts, found.health) == ((), "healthy")


def test_one_that_was_found_elsewhere_in_between_begins_anew() -> None:
    scene = standing(synchronizes, scene=Scene(1))
    for step in range(100):
        (takes_item if step // 14 % 2 else synchronizes)(scene, 0)
        found = scene.judge().frame
        scene.pass_time(0.5)
    assert (found.verdicts, found.health) == ((), "healthy")


def test_an_op_in_between_begins_anew() -> None:
    scene = standing(synchronizes)
    for _ in range(8):
        scene.settle(8)
        scene.does(range(4), "all_reduce", ago=0.1)
    found = scene.settle(1)
    assert (found.verdicts, found.health) == ((), "healthy")


def test_an_engine_without_a_request_is_healthy_once_it_was_seen_to_be_so() -> None:
    scene = standing(sleeps_in_c)
    scene.at(0, frame("/usr/lib/python3.11/selectors.py:468", "select"),
             frame("/usr/lib/python3.11/asyncio/base_events.py:1898", "_run_once"))  # fmt: skip
    scene.kernel(0, "S", "epoll_wait", "ep_poll")
    first = scene.settle(50)
    assert (only(first).kind, first.health, exit_status(first)) == ("undecided", "undecided", 4)
    scene.does(range(4), "broadcast", ago=0.1)
    found = scene.settle(90)
    assert (found.verdicts, found.health, exit_status(found)) == ((), "healthy", 0)
    assert any(note.startswith("rank 0 waits for work") for note in found.notes)


def test_workers_that_wait_for_their_engine_are_idle_once_they_were_seen_to_be_so() -> None:
    loop = frame("/v/site-packages/vllm/v1/executor/multiproc_executor.py:500", "worker_busy_loop")
    scene = Scene(4)
    for rank in range(4):
        spin = frame(f"{SHM}:90", "spin", "time.sleep(self.wait_sleep_s)")
        read = frame(f"{SHM}:400", "acquire_read")
        scene.at(rank, spin, read, frame(f"{SHM}:450", "dequeue"), loop)
        scene.kernel(rank, "S", "clock_nanosleep", "hrtimer_nanosleep")
    scene.beside(range(4), "pynccl", "custom all-reduce")
    first = scene.settle(50)
    assert (only(first).kind, first.health) == ("undecided", "undecided")
    scene.does(range(4), "all_reduce", ago=0.1)
    found = scene.settle(90)
    assert (found.verdicts, found.health) == ((), "healthy")


def replays(*names: str, idle: bool = False) -> Scene:
    """NCCL was used an hour ago; since then all are at their devices."""
    scene = Scene(4, backend="nccl", begun=0)
    scene.does(range(4), "all_reduce", ago=3600, tracked=False)
    for rank in range(4):
        takes_item(scene, rank)
    if idle:
        select = frame("/usr/lib/python3.11/selectors.py:468", "select")
        scene.at(0, select, frame("/usr/lib/python3.11/asyncio/base_events.py:1898", "_run_once"))
        scene.kernel(0, "S", "epoll_wait", "ep_poll")
    scene.beside(range(4), *names)
    return scene


def test_a_device_wait_long_after_the_last_op_is_not_for_that_op() -> None:
    scene = replays("pynccl")
    found = scene.settle(25)
    assert (found.verdicts, found.health) == ((), "healthy")
    verdict = only(scene.settle(20))
    assert (verdict.kind, verdict.why.cause) == ("undecided", "unobserved")
    assert verdict.headline.startswith("ranks 0-3 are in waits that frtop does not observe")


def test_nor_is_it_in_an_engine_without_a_request() -> None:
    found = replays("pynccl", idle=True).settle(50)
    assert (found.verdicts, found.health) == ((), "healthy")


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize(("backend", "gil", "moves", "named"), [
    ("nccl", False, False, ()),
    ("nccl", True, False, (2,)),
    ("nccl", False, True, (2,)),
    ("gloo", False, False, (2,)),
])  # fmt: skip
def test_c_code_that_runs_at_one_line_may_be_behind_a_full_queue(
    backend: str, named: tuple[int, ...], *, gil: bool, moves: bool, prepared: bool
) -> None:
    scene = Scene(4, backend=backend) if prepared else Unprepared(4)
    for actor in scene.actors.values():
        actor.groups = {n: replace(one, backend=backend) for n, one in actor.groups.items()}
    tracked = backend == "gloo"
    scene.does(range(4), "all_reduce", ago=45, tracked=tracked)
    scene.waits([0, 1, 3], "all_reduce", for_s=40, tracked=tracked)
    for second in range(6):
        line = f"train.py:{33 + second if moves else 33}"
        scene.at(2, frame(line, source="y = a * b"), active=True)
        scene.actors[2].owns_gil = gil
        scene.kernel(2, "R", cpu_ns=2 * second * SECOND)
        found = scene.settle(2)
    verdict = only(found)
    assert verdict.culprits == named
    if not named:
        assert (verdict.kind, found.health) == ("undecided", "undecided")
        assert "rank 2 runs C code, perhaps behind a full device queue" in verdict.headline
        assert any("train.py:33" in line for line in verdict.evidence)


def test_a_wait_for_a_device_that_spins_is_no_progress() -> None:
    scene = three_wait(40)
    synchronize = frame("/v/site-packages/torch/cuda/__init__.py:1085", "synchronize")
    scene.at(2, synchronize, frame("train.py:33"), active=True)
    for second in range(6):
        scene.kernel(2, "R", cpu_ns=2 * second * SECOND)
        found = scene.settle(2)
    verdict = only(found)
    assert (verdict.culprits, verdict.why.cause, verdict.progress) == ((2,), "device", "unknown")
    assert any("so does a wait for a device" in line for line in verdict.evidence)


@pytest.mark.parametrize("active", [True, False])
def test_a_wait_for_a_device_is_undecided_and_those_behind_it_are_listed(*, active: bool) -> None:
    scene = Unprepared(4)
    for actor in scene.actors.values():
        actor.groups = {n: replace(one, backend="nccl") for n, one in actor.groups.items()}
    scene.does(range(4), "all_reduce", ago=45, tracked=False)
    scene.waits([0, 1, 3], "all_reduce", for_s=40, tracked=False)
    synchronize = frame("/v/site-packages/torch/cuda/__init__.py:1085", "synchronize")
    scene.at(2, synchronize, frame("train.py:33"), active=active)
    found = scene.settle(8)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("undecided", ())
    assert verdict.evidence[1:] == (
        "ranks 0-1,3 wait in all_reduce #9 of default_pg for rank 2",
        "by stacks: rank 2 waits for its device at train.py:33 (train)",
    )


def test_without_a_transport_the_last_op_of_the_device_counts() -> None:
    assert only(replays().settle(10)).why.cause == "unknown"


def test_a_member_that_has_not_issued_the_op_of_a_device_is_named() -> None:
    scene = Scene(4, backend="nccl")
    scene.does([0, 1, 3], "all_reduce", ago=40, tracked=False)
    for rank in (0, 1, 3):
        takes_item(scene, rank)
    scene.sleeps(2)
    scene.beside(range(4), "pynccl")
    assert only(scene.settle(10)).culprits == (2,)


def test_ranks_without_such_a_transport_are_not_looked_at_for_it() -> None:
    scene = Scene(4)
    for rank in range(4):
        synchronizes(scene, rank)
    found = scene.settle(50)
    assert (found.verdicts, found.health) == ((), "healthy")


def test_a_transport_that_is_gone_counts_no_longer() -> None:
    scene = one_awaited(synchronizes)
    assert only(scene.settle(6)).kind == "undecided"
    scene.beside([2])
    assert only(scene.settle(6)).culprits == (2,)


def test_without_any_stack_the_kernel_does_not_tell_either() -> None:
    scene = Scene(4)
    scene.beside([2], "DeepEP")
    scene.hear()
    view = scene.frame().ranks[2]
    assert view.main_stack is None
    assert unobserved_wait(view) is not None
    at_pipe = wire.Process(1002, "S", "python", "pipe_read", "read", "pipe:[77]")
    assert unobserved_wait(replace(view, process=at_pipe)) is None
