"""Remote calls: a caller waits for the handler that runs in its callee."""

from __future__ import annotations

import pytest

from diagnosis.scenes import COLLECTIVE, MAIN, Scene, frame, only, told
from diagnosis.unprepared import Unprepared
from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame

RPC = "/venv/lib/python3.11/site-packages/torch/distributed/rpc"
SHUTDOWN = (
    frame("/usr/lib/python3.11/threading.py:327", "Condition.wait"),
    frame(f"{RPC}/api.py:257", "_all_gather"),
    frame(f"{RPC}/api.py:382", "shutdown"),
    frame("server.py:40", "main"),
)
RUNS = frame(f"{RPC}/internal.py:209", "_run_function")
READS = (frame("server.py:12", "read", "path.read_bytes()"), RUNS)
COMPUTES = (frame("server.py:20", "lookup", "time.sleep(60)"), RUNS)


def calls(to: str = '"worker2"') -> tuple[wire.TraceFrame, ...]:
    variables = (("to", to), ("timeout", "-1"))
    inner = wire.TraceFrame(
        "rpc_sync", f"{RPC}/api.py", 842, source="return fut.wait()", variables=variables
    )
    return (inner, frame(f"{RPC}/api.py:99", "wrapper"), frame("train.py:12", "main"))


def handles(
    scene: Scene,
    rank: int,
    *frames: wire.TraceFrame,
    number: int = 1,
    wait: wire.ThreadWait | None = None,
) -> None:
    """A thread of RPC works on a call; the kernel shows it in a read."""
    actor, tid = scene.actors[rank], 2000 + number
    stack = wire.ThreadStack(MAIN + number, tid, "", False, False, frames, wait)
    actor.other_threads = (*actor.other_threads, stack)
    actor.threads = (*actor.threads, wire.Process(tid, "S", "", "", "openat", "/data/table"))


def named(name: str) -> tuple[wire.TraceFrame, ...]:
    """The stack of a rank that waits until all calls are done; it shows its own name."""
    variables = (("self_name", f'"{name}"'),)
    gather = wire.TraceFrame("_all_gather", f"{RPC}/api.py", 257, variables=variables)
    return (SHUTDOWN[0], gather, *SHUTDOWN[2:])


def job(
    scene: Scene, to: str = '"worker2"', server: tuple[wire.TraceFrame, ...] = SHUTDOWN
) -> Scene:
    """Rank 1 waits in an op for rank 0, which waits for the answer to a remote call."""
    scene.group("trainers", (0, 1))
    scene.does((0, 1), "all_reduce", group="trainers", ago=41)
    scene.waits([1], "all_reduce", group="trainers", for_s=40)
    scene.at(1, *COLLECTIVE)
    scene.at(0, *calls(to))
    for rank in range(2, len(scene.actors)):
        scene.at(rank, *server)
        scene.kernel(rank, syscall="futex")
    return scene


SCENES = (Scene, Unprepared)


@pytest.mark.parametrize("kind", SCENES)
def test_the_handler_that_does_not_answer_is_the_root_with_its_line(kind: type[Scene]) -> None:
    scene = job(kind(3))
    handles(scene, 2, *READS)
    found = scene.settle(12)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "file_io")
    assert set(verdict.victims) == {0, 1}
    assert "has not answered; rank 0 waits in rpc_sync to worker2" in verdict.headline
    assert "rank 1 waits behind it" in verdict.headline
    assert "server.py:12 (read)" in verdict.why.text
    assert "the handler of a remote call" in verdict.why.text
    assert "default_pg" not in f"{verdict.headline} {verdict.why.text}"
    assert found.health == "hung"


@pytest.mark.parametrize("kind", SCENES)
def test_a_handler_counts_whatever_the_callee_waits_for_beside_it(kind: type[Scene]) -> None:
    """It is no deadlock: rank 2 waits in the op, and its handler works for rank 0."""
    scene = kind(3)
    scene.waits([1, 2], "all_reduce", for_s=40)
    for rank in (1, 2):
        scene.at(rank, *COLLECTIVE)
    scene.at(0, *calls())
    handles(scene, 2, *READS)
    verdict = only(scene.settle(12))
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "file_io")
    assert "server.py:12 (read)" in verdict.why.text


def test_of_two_handlers_the_one_that_holds_the_others_lock_is_the_root() -> None:
    scene = job(Unprepared(3))
    enters = (frame("server.py:10", "push", "with self.lock:"), RUNS)
    handles(scene, 2, *enters, number=1, wait=wire.ThreadWait("lock", (MAIN + 2,)))
    handles(scene, 2, *READS, number=2)
    verdict = only(scene.settle(12))
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "file_io")
    assert "server.py:12 (read)" in verdict.why.text


Handlers = dict[int, tuple[wire.TraceFrame, ...]]
CASES: tuple[tuple[str, Handlers, dict[int, str], int | None], ...] = (
    ('"worker2"', {2: READS, 3: COMPUTES}, {}, 2),  # its number
    ('"server"', {3: READS}, {}, 3),  # the only handler
    ("3", {2: READS, 3: READS}, {}, 3),  # a rank
    ("3", {2: READS, 3: READS}, {2: "server"}, 3),
    ('"server"', {2: READS, 3: COMPUTES}, {3: "server"}, 3),  # it tells its name
    ('"server"', {2: READS, 3: COMPUTES}, {}, None),
    ('"server"', {3: READS}, {3: "trainer"}, None),  # it has another name
    ('"server"', {2: READS, 3: COMPUTES}, {3: "trainer"}, 2),
    ('"worker2"', {3: READS}, {}, None),
    ('"worker2"', {2: READS, 3: READS}, {3: "worker0"}, None),  # numbers are not ranks
    ('"worker2"', {}, {}, None),
    ('"worker2"', {2: (*calls('"worker3"'), RUNS)}, {}, None),  # it calls another one itself
    ('"worker2"', {2: (*calls('"worker3"'), RUNS), 3: READS}, {}, 3),  # which does not answer
    ("<torch._C._distributed_rpc.WorkerInfo at 0x7f>", {2: READS, 3: READS}, {}, None),
)  # fmt: skip


@pytest.mark.parametrize(("to", "handlers", "names", "rank"), CASES, ids=str)
def test_who_is_called(
    to: str,
    handlers: Handlers,
    names: dict[int, str],
    rank: int | None,
) -> None:
    scene = job(Unprepared(4), to)
    for called, frames in handlers.items():
        handles(scene, called, *frames)
    for server, name in names.items():
        scene.at(server, *named(name))
        scene.kernel(server, syscall="futex")
    found = scene.settle(12)
    verdict = only(found)
    if rank is not None:
        assert (verdict.kind, verdict.culprits) == ("not_entered", (rank,))
        return
    _is_undecided(found)
    told = "\n".join(verdict.evidence)
    assert "rpc_sync" in verdict.headline
    assert "train.py:12" in told
    for called, frames in handlers.items():
        assert f"rank {called}: " in told, told
        assert any(f"server.py:{n}" in told or frames[0].function != "read" for n in (12, 20))


def _is_undecided(found: Frame) -> None:
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, found.health) == ("undecided", (), "undecided")
    assert "default_pg" not in verdict.headline


@pytest.mark.parametrize("kind", SCENES)
def test_servers_that_wait_for_calls_are_well_while_the_others_get_on(kind: type[Scene]) -> None:
    scene = kind(3)
    scene.group("trainers", (0, 1))
    scene.at(2, *SHUTDOWN)
    scene.kernel(2, syscall="futex")
    for _ in range(40):
        scene.does((0, 1), "all_reduce", group="trainers", ago=0.1)
        scene.pass_time(2)
        found = scene.judge().frame
        assert not found.verdicts
    assert found.health == "healthy"


@pytest.mark.parametrize("kind", SCENES)
def test_tensorpipes_thread_that_polls_is_no_progress(kind: type[Scene]) -> None:
    scene = job(kind(3))
    handles(scene, 2, *READS)
    actor = scene.actors[2]
    found = None
    for _ in range(12):
        polled = wire.Process(2900, "R", "TP_SHM_reactor", cpu_ns=int(scene.now * 1e9))
        actor.threads = (*actor.threads[:1], polled)
        actor.process = wire.Process(actor.pid, "S", "python", cpu_ns=int(scene.now * 1e9))
        found = scene.settle(1)
    assert found is not None
    assert told(found, "culprits", "progress", "confidence") == ((2,), "none", "confirmed")


def test_a_job_of_remote_calls_alone_is_undecided_with_who_is_where() -> None:
    scene = Unprepared(3, begun=0, ago=200.0)
    for actor in scene.actors.values():
        actor.groups.clear()
        actor.group_progress.clear()
    scene.at(0, *calls())
    for rank in (1, 2):
        scene.at(rank, *SHUTDOWN)
    for rank in range(3):
        scene.kernel(rank, syscall="futex")
    handles(scene, 2, *READS)
    found = scene.settle(90)
    _is_undecided(found)
    told = "\n".join((only(found).headline, *only(found).evidence))
    assert "rank 0: MainThread waits for the answer to rpc_sync to worker2 at train.py:12" in told
    assert "rank 1: MainThread is in rpc.shutdown" in told
    assert "rank 2: the handler of a remote call, thread 2001, is in a file operation" in told


@pytest.mark.parametrize(("kind", "is_named"), [(Scene, True), (Unprepared, False)])
def test_a_future_of_a_remote_call_is_no_op_of_a_group(
    kind: type[Scene], *, is_named: bool
) -> None:
    """`rpc_async` and then `wait()`: with a recorder it is known that no op is pending."""
    scene = job(kind(3))
    scene.at(0, frame("train.py:14", "main", "answer = future.wait()"))
    scene.actors[0].threads = (wire.Process(2800, "S", "TP_UV_loop"),)
    handles(scene, 2, *READS)
    found = scene.settle(12)
    verdict = only(found)
    assert "default_pg" not in verdict.headline
    if is_named:
        assert (verdict.kind, verdict.culprits) == ("not_entered", (2,))
        assert "rank 0 waits in a remote call" in verdict.headline
    else:
        _is_undecided(found)
        assert "rank 2: the handler of a remote call" in "\n".join(verdict.evidence)
