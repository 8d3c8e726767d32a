"""Stacks alone: who is inside, who is not, who is further on, and when nobody can say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from diagnosis.scenes import BACKWARD, C10D, DATALOADER, LOCK, frame
from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.evidence.c10d_call import call_of, path_of, program_order
from frtop_tui.diagnosis.model import Frame, Verdict, observed
from frtop_tui.diagnosis.words.absence import absence_of
from frtop_tui.files.pyspy import frame_of
from frtop_tui.job.model import DUMPS
from frtop_tui.text.exit_status import exit_status

SECOND = 1_000_000_000
TORCH = C10D.removesuffix("/distributed/distributed_c10d.py")
WRAPPER = frame(f"{TORCH}/distributed/c10d_logger.py:83", "_exception_logger.<locals>.wrapper")
MAIN = frame("train.py:90", "main")
SLEEP = (frame("train.py:33", source="time.sleep(60)"), MAIN)
ASLEEP = (frame("train.py:33"), MAIN)
PROCESS_GROUP = "<torch._C._distributed_c10d.ProcessGroup at 0x7f97679d2ab0>"


def has(inner: wire.TraceFrame, **variables: str) -> wire.TraceFrame:
    return wire.TraceFrame(
        inner.function, inner.file, inner.line, variables=tuple(variables.items())
    )


def inside(
    kind: str, line: str = "train.py:40", *outer: wire.TraceFrame, **variables: str
) -> tuple[wire.TraceFrame, ...]:
    """The stack of a rank that has called `kind`."""
    call = has(frame(f"{C10D}:3024", kind), **variables)
    return (call, WRAPPER, frame(line), *(outer or (MAIN,)))


def thread(
    frames: Sequence[wire.TraceFrame],
    name: str = "MainThread",
    *,
    active: bool = False,
    gil: bool = False,
) -> wire.ThreadStack:
    ident = 1000 + sum(map(ord, name))
    return wire.ThreadStack(ident, 77, name, active, gil, tuple(frames))


Stacks = tuple[wire.TraceFrame, ...] | wire.ThreadStack | tuple[wire.ThreadStack, ...]


def threads_of(one: Stacks) -> tuple[wire.ThreadStack, ...]:
    if isinstance(one, wire.ThreadStack):
        return (one,)
    stacks = tuple(part for part in one if isinstance(part, wire.ThreadStack))
    return stacks or (thread([part for part in one if isinstance(part, wire.TraceFrame)]),)


def judged(
    ranks: Mapping[int, Stacks], before: Mapping[int, Stacks] | None = None, apart_s: float = 5.0
) -> Frame:
    at = 1_000 * SECOND
    now = {rank: ("node0", threads_of(one), at) for rank, one in ranks.items()}
    then = at - int(apart_s * SECOND)
    old = {rank: ("node0", threads_of(one), then) for rank, one in (before or {}).items()}
    return frame_of(Path("/dumps/job"), now, (), old)


def verdict_of(found: Frame) -> Verdict:
    assert len(found.verdicts) == 1, [verdict.headline for verdict in found.verdicts]
    assert found.verdicts[0].confidence == "suspect"
    return found.verdicts[0]


REDUCE = inside("all_reduce")
BUSY = thread(REDUCE, active=True)


@pytest.mark.parametrize(("stack", "cause"), [
    (SLEEP, "sleeping"),
    (DATALOADER, "dataloader"),
    (LOCK, "lock"),
    ((frame("/usr/lib/python3.11/pathlib.py:1044", "Path.open"), *ASLEEP), "file_io"),
    ((frame("/usr/lib/python3.11/socket.py:700", "SocketIO.readinto"), *ASLEEP), "socket"),
    ((frame(f"{TORCH}/_inductor/graph.py:7", "GraphLowering.run"), *ASLEEP), "compiling"),
    (thread(ASLEEP, gil=True), "gil"),
    (thread(ASLEEP, active=True, gil=True), "computing"),
    (inside("destroy_process_group", "train.py:99"), "out_of_loop"),
])  # fmt: skip
def test_who_is_elsewhere_while_all_others_are_inside_is_named(stack: Stacks, cause: str) -> None:
    found = judged({0: REDUCE, 1: REDUCE, 2: stack, 3: REDUCE})
    verdict = verdict_of(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), cause)
    assert (fold(verdict.victims), verdict.progress) == ("0-1,3", "unknown")
    assert "all_reduce, called at train.py:40 (train)" in verdict.headline
    assert found.health == "held up"
    assert exit_status(found) == 5
    assert [view.state for view in found.ranks.values()] == ["blocked"] * 2 + ["late", "blocked"]
    assert any("group" in text for text in verdict.missing)
    assert any("once" in text for text in verdict.missing)


def test_of_several_that_are_not_there_who_is_at_a_blocking_place_is_named() -> None:
    running = thread((frame("train.py:35"), MAIN), active=True)
    ranks: dict[int, Stacks] = dict.fromkeys(range(8), REDUCE)
    verdict = verdict_of(judged({**ranks, 2: SLEEP, 5: running}))
    assert verdict.culprits == (2,)
    assert any("rank 5 is absent too" in line for line in verdict.evidence)


def test_two_causes_are_two_verdicts() -> None:
    ranks: dict[int, Stacks] = dict.fromkeys(range(8), REDUCE)
    found = judged({**ranks, 2: SLEEP, 5: DATALOADER})
    assert [(v.culprits, v.why.cause) for v in found.verdicts] == [
        ((2,), "sleeping"), ((5,), "dataloader"),
    ]  # fmt: skip


def test_the_only_one_that_is_free_is_named_whatever_calls_the_others_are_in() -> None:
    gather = inside("all_gather", "model.py:7")
    found = judged({0: REDUCE, 1: gather, 2: BACKWARD, 3: DATALOADER, 4: inside("recv"), 5: gather})
    assert verdict_of(found).culprits == (3,)


@pytest.mark.parametrize("ranks", [
    {0: REDUCE, 1: REDUCE, 2: SLEEP, 3: SLEEP},
    {0: REDUCE, 1: SLEEP, 2: SLEEP, 3: SLEEP},
    {0: REDUCE, 1: REDUCE, 2: ASLEEP, 3: REDUCE},  # in a C call: a Work's wait, or a sleep
    {0: REDUCE, 1: inside("barrier"), 2: thread(ASLEEP, active=True), 3: REDUCE},
    {0: REDUCE, 1: REDUCE, 2: REDUCE, 3: inside("barrier", "train.py:55")},
    {0: REDUCE, 1: REDUCE, 2: REDUCE, 3: REDUCE},
    {0: REDUCE, 1: REDUCE, 2: REDUCE, 3: inside("all_reduce", "train.py:41")},
    {0: REDUCE, 1: REDUCE, 2: BACKWARD, 3: REDUCE},
    {0: REDUCE, 1: REDUCE, 3: REDUCE},
])  # fmt: skip
def test_nobody_is_named_where_stacks_do_not_tell(ranks: dict[int, Stacks]) -> None:
    found = judged(ranks)
    verdict = verdict_of(found)
    assert (verdict.kind, verdict.culprits, found.health) == ("undecided", (), "undecided")
    assert exit_status(found) == 4


def test_a_rank_without_stacks_may_be_the_one_that_is_missing() -> None:
    verdict = verdict_of(judged({0: REDUCE, 1: REDUCE, 3: REDUCE}))
    assert "rank 2" in verdict.why.text
    assert "rank 2" in verdict.next


def test_nobody_inside_is_no_verdict_and_no_health() -> None:
    found = judged(dict.fromkeys(range(4), SLEEP))
    assert (found.verdicts, found.health, exit_status(found)) == ((), "undecided", 4)
    assert "no rank is inside a collective" in found.notes[0]


def test_who_has_left_the_function_that_the_others_are_in_is_further_on() -> None:
    loop = inside("all_reduce", "train.py:40", frame("train.py:90", "main"))
    end = (*inside("barrier")[:2], frame("train.py:95", "main"))
    verdict = verdict_of(judged({0: loop, 1: loop, 2: loop, 3: end}))
    assert "rank 3 is further on" in verdict.headline
    assert verdict.parties == ((0, 1, 2), (3,))


def test_lines_of_different_functions_tell_no_order() -> None:
    one, other = inside("all_reduce", "a.py:9"), inside("barrier", "b.py:5")
    verdict = verdict_of(judged({0: one, 1: one, 2: one, 3: other}))
    assert "further" not in verdict.headline
    assert "behind" not in verdict.headline


@pytest.mark.parametrize(("one", "other", "order"), [
    ((40, 90), (40, 90), "same"), ((41, 90), (40, 90), "later"), ((1, 95), (40, 90), "later"),
    ((40, 80), (1, 90), "earlier"),
])  # fmt: skip
def test_the_outermost_line_that_differs_decides(
    one: tuple[int, int], other: tuple[int, int], order: str
) -> None:
    def path(inner: int, outer: int) -> tuple[tuple[str, str, int], ...]:
        return path_of((frame(f"train.py:{inner}", "train"), frame(f"train.py:{outer}", "main")))

    assert program_order(path(*one), path(*other))[0] == order


# Twice


COMPILES = (frame(f"{TORCH}/_inductor/graph.py:7", "GraphLowering.run"), *ASLEEP)
COMPUTES = thread(ASLEEP, active=True)
RUNS_ON = thread(ASLEEP, active=True, gil=True)


@pytest.mark.parametrize(("before", "now", "apart_s", "progress", "status"), [
    (SLEEP, SLEEP, 5.0, "none", 3),
    (SLEEP, SLEEP, 0.5, "unknown", 5),  # dumps that are too near prove nothing
    (COMPILES, COMPILES, 5.0, "unknown", 5),  # it may get on in other processes
    (RUNS_ON, RUNS_ON, 5.0, "unknown", 5),  # it computes, or waits busily
    (thread((frame("train.py:31"), MAIN), active=True), COMPUTES, 5.0, "active", 5),
])  # fmt: skip
def test_whether_an_absent_rank_gets_on_is_told_by_two_dumps(
    before: Stacks, now: Stacks, apart_s: float, progress: str, status: int
) -> None:
    ranks: dict[int, Stacks] = {0: REDUCE, 1: REDUCE, 2: now, 3: REDUCE}
    found = judged(ranks, {**ranks, 2: before}, apart_s)
    assert (verdict_of(found).culprits, verdict_of(found).progress) == ((2,), progress)
    assert exit_status(found) == status


def test_who_waits_busily_does_not_move() -> None:
    ranks: dict[int, Stacks] = {0: BUSY, 1: REDUCE, 2: SLEEP, 3: BUSY}
    assert verdict_of(judged(ranks, ranks)).progress == "none"


def test_a_job_that_moves_is_not_accused() -> None:
    now: dict[int, Stacks] = {0: REDUCE, 1: REDUCE, 2: SLEEP, 3: REDUCE}
    found = judged(now, {**now, 1: inside("barrier", "train.py:55")})
    assert (found.verdicts, exit_status(found)) == ((), 4)
    assert "moves" in found.notes[0]


def test_who_came_out_of_a_call_meanwhile_is_not_accused() -> None:
    now: dict[int, Stacks] = {0: REDUCE, 1: REDUCE, 2: SLEEP, 3: REDUCE}
    assert verdict_of(judged(now, {**now, 2: REDUCE})).kind == "undecided"


def test_a_meeting_that_asks_its_store_again_and_again_does_not_move() -> None:
    def polling(line: int) -> tuple[wire.TraceFrame, ...]:
        barrier = frame(f"{C10D}:{line}", "_store_based_barrier")
        return (barrier, *inside("new_group"))

    now: dict[int, Stacks] = {0: polling(1060), 1: polling(1060), 2: polling(1062), 3: SLEEP}
    verdict = verdict_of(judged(now, {**now, 0: polling(1062)}))
    assert (verdict.culprits, verdict.progress) == ((3,), "none")
    assert verdict.op is not None
    assert verdict.op.kind == "new_group"
    assert any("which ranks have to call new_group" in text for text in verdict.missing)


def test_stacks_beside_what_a_recorder_dumped_tell_why_a_rank_is_not_there() -> None:
    view = judged({0: REDUCE, 1: SLEEP}).ranks[1]
    assert view.snapshot is not None
    look = wire.Snapshot(2, 1, dumps=(wire.StackDump(0, view.threads),))
    identity = wire.Identity(0, 0, 1, -1, view.identity.job)
    evidence = replace(DUMPS, has_stacks=True)
    dumped = replace(view, identity=identity, snapshot=look, evidence=evidence)
    assert absence_of(dumped, 1).why.cause == "sleeping"
    assert absence_of(replace(dumped, evidence=DUMPS), 1).why.cause == "unknown"


# Two dumps in which nothing moves


@pytest.mark.parametrize("odd", [REDUCE, inside("barrier", "train.py:55")])
def test_that_nothing_moves_is_said_and_asked_no_more(odd: Stacks) -> None:
    ranks: dict[int, Stacks] = {0: REDUCE, 1: REDUCE, 2: REDUCE, 3: odd}
    verdict = verdict_of(judged(ranks, ranks))
    assert (verdict.kind, verdict.progress) == ("undecided", "none")
    assert any("nothing has moved in 5.0s" in line for line in verdict.evidence)
    assert "again" not in verdict.next
    assert "it has only begun" not in verdict.why.text


# Devices: behind a full queue every host stops at what it launches next


def synchronizes(line: str = "train.py:50", *, active: bool = True) -> wire.ThreadStack:
    inner = frame(f"{TORCH}/cuda/__init__.py:1040", "synchronize")
    return thread((inner, frame(line), MAIN), active=active)


def at_line(line: str, *, gil: bool = False) -> wire.ThreadStack:
    return thread((frame(line), MAIN), active=True, gil=gil)


ON_DEVICE = (thread(REDUCE), thread((frame(f"{TORCH}/cuda/streams.py:9", "query"),), "other"))
"""Stacks of a rank inside of the call in a job that uses a device."""


@pytest.mark.parametrize("waits", [
    synchronizes("train.py:50"),
    synchronizes("train.py:30"),
    synchronizes("train.py:50", active=False),
    thread((frame(f"{TORCH}/cuda/memory.py:9", "empty_cache"), frame("train.py:30"), MAIN),
           active=True),
    thread((frame("train.py:30", source="loss = total.item()"), MAIN), active=True, gil=True),
    (thread(LOCK), thread((frame(f"{TORCH}/cuda/__init__.py:1040", "synchronize"),), "saver")),
])  # fmt: skip
@pytest.mark.parametrize("world", [2, 8])
def test_who_waits_for_its_device_is_never_named(waits: Stacks, world: int) -> None:
    ranks: dict[int, Stacks] = {**dict.fromkeys(range(world - 1), REDUCE), world - 1: waits}
    for found in (judged(ranks), judged(ranks, ranks)):
        verdict = verdict_of(found)
        assert (verdict.kind, verdict.culprits) == ("undecided", ())
        assert verdict.progress != "active"
        assert verdict.headline.startswith(f"rank {world - 1} ")
        assert "device" in verdict.why.text


@pytest.mark.parametrize("stands", [
    at_line("train.py:30"), at_line("train.py:30", gil=True), thread(ASLEEP, gil=True),
    inside("destroy_process_group", "train.py:99"),
])  # fmt: skip
def test_no_line_convicts_a_rank_of_a_job_with_devices(stands: Stacks) -> None:
    ranks: dict[int, Stacks] = {0: ON_DEVICE, 1: REDUCE, 2: stands, 3: REDUCE}
    assert verdict_of(judged(ranks)).culprits == ()
    assert verdict_of(judged(ranks, ranks)).culprits == ()


KERNELS = frame("/v/lib/python3.11/site-packages/kernels/fwd.py:9")


@pytest.mark.parametrize(("ranks", "named"), [
    # what no device explains
    ({0: ON_DEVICE, 1: REDUCE, 2: DATALOADER, 3: synchronizes()}, (2,)),
    # C code that runs may launch on a device that nothing shows
    ({0: REDUCE, 1: REDUCE, 2: at_line("train.py:30"), 3: REDUCE}, ()),
    ({0: REDUCE, 1: REDUCE, 2: thread((KERNELS, MAIN), active=True, gil=True), 3: REDUCE}, ()),
    # others that wait busily may be behind a full queue
    ({0: BUSY, 1: BUSY, 2: at_line("train.py:30", gil=True), 3: BUSY}, ()),
])  # fmt: skip
def test_who_may_be_at_a_device_is_not_named(
    ranks: dict[int, Stacks], named: tuple[int, ...]
) -> None:
    assert verdict_of(judged(ranks)).culprits == named


def test_a_compiler_that_measures_on_its_device_is_not_blamed_and_is_shown() -> None:
    stack = (
        frame(f"{TORCH}/cuda/__init__.py:1040", "synchronize"),
        frame(f"{TORCH}/_inductor/select_algorithm.py:9", "benchmark"),
        frame("train.py:30"),
        MAIN,
    )
    verdict = verdict_of(judged({0: REDUCE, 1: REDUCE, 2: thread(stack), 3: REDUCE}))
    assert verdict.culprits == ()
    assert verdict.headline.startswith("rank 2 waits for its device while it compiles, at train.py")


# Further on


LATER = (frame("train.py:55", source="time.sleep(60)"), MAIN)


def test_who_is_further_on_in_the_only_look_is_not_named() -> None:
    ranks: dict[int, Stacks] = {0: REDUCE, 1: REDUCE, 2: LATER, 3: REDUCE}
    verdict = verdict_of(judged(ranks))
    assert (verdict.kind, verdict.culprits) == ("undecided", ())
    assert "rank 2 may be past that call" in verdict.why.text
    assert any("rank 2 is further on" in line for line in verdict.evidence)
    verdict = verdict_of(judged(ranks, ranks))
    assert (verdict.culprits, verdict.progress) == ((2,), "none")


# Who differs comes first


def test_one_of_many_is_listed_first_and_is_not_called_many() -> None:
    ranks: dict[int, Stacks] = dict.fromkeys(range(64), REDUCE)
    other = inside("all_reduce", "train.py:42")
    verdict = verdict_of(judged({**ranks, 7: at_line("train.py:30"), 9: other}))
    assert verdict.headline.startswith(
        "rank 7 runs at train.py:30 (train); rank 9 is in all_reduce"
    )
    assert "so many" not in verdict.why.text


def test_ranks_at_one_place_are_one_entry() -> None:
    ranks: dict[int, Stacks] = {**dict.fromkeys(range(7), at_line("train.py:30")), 7: REDUCE}
    verdict = verdict_of(judged(ranks))
    assert verdict.headline == (
        "rank 7 is in all_reduce, called at train.py:40 (train);"
        " ranks 0-6: each runs at train.py:30 (train)"
    )
    assert "so many" in verdict.why.text


def test_a_rank_moves_only_where_two_dumps_show_it() -> None:
    now: dict[int, Stacks] = dict.fromkeys(range(3), SLEEP)
    before = {**now, 1: LOCK}
    states = ["unknown", "moving", "unknown"]
    assert [view.state for view in judged(now, before).ranks.values()] == states
    assert {view.state for view in judged(now).ranks.values()} == {"unknown"}


def test_of_many_places_none_is_left_out() -> None:
    ranks: dict[int, Stacks] = dict.fromkeys(range(16), REDUCE)
    odd = {rank: at_line(f"train.py:{rank}") for rank in range(2, 7)}
    verdict = verdict_of(judged({**ranks, **odd}))
    shown = [*verdict.evidence, verdict.headline]
    assert all(any(f"rank {rank} runs at" in line for line in shown) for rank in odd)


def test_the_line_of_a_compiler_tells_more_than_one_of_a_device() -> None:
    stack = (
        frame(f"{TORCH}/cuda/__init__.py:500", "get_device_properties"),
        frame(f"{TORCH}/_inductor/scheduler.py:77", "codegen"),
    )
    verdict = verdict_of(judged({0: REDUCE, 1: REDUCE, 2: stack}))
    assert verdict.culprits == (2,)
    assert "compiles at torch/_inductor/scheduler.py:77" in verdict.why.text


def test_waits_for_devices_alone_are_waits_for_nobody() -> None:
    ranks: dict[int, Stacks] = dict.fromkeys(range(7), synchronizes())
    verdict = verdict_of(judged({**ranks, 7: DATALOADER}))
    assert (verdict.kind, verdict.culprits) == ("undecided", ())
    assert verdict.headline.startswith("rank 7 loads data")


def test_a_line_at_a_queue_waits_for_another_thread() -> None:
    queued = (frame("train.py:33", source="batch = ready.get()"), MAIN)
    verdict = verdict_of(judged({0: REDUCE, 1: REDUCE, 2: queued}))
    assert (verdict.culprits, verdict.why.cause) == ((2,), "lock")
    inside = (thread(queued), thread(REDUCE, "loader"))
    assert verdict_of(judged({0: REDUCE, 1: REDUCE, 2: inside})).culprits == ()


def test_the_line_of_a_framework_tells_more_than_one_of_torch() -> None:
    stack = (
        frame(f"{TORCH}/cuda/__init__.py:1040", "synchronize"),
        frame("/v/lib/python3.11/site-packages/megatron/schedules.py:77", "backward_step"),
    )
    verdict = verdict_of(judged({0: REDUCE, 1: REDUCE, 2: thread(stack)}))
    assert "megatron/schedules.py:77" in verdict.headline


# Steps inside torch


def test_what_torch_does_inside_a_call_does_not_tell_calls_apart() -> None:
    call, *outer = inside("all_reduce")
    deeper = (frame(f"{TORCH}/distributed/c10d_logger.py:5", "f"), replace(call, line=0), *outer)
    ranks: dict[int, Stacks] = {0: REDUCE, 1: (replace(call, line=7), *outer), 2: deeper, 3: RUNS}
    verdict = verdict_of(judged(ranks))
    assert (verdict.culprits, fold(verdict.victims)) == ((3,), "0-2")
    before: dict[int, Stacks] = {**ranks, 0: ranks[1], 1: ranks[2], 2: ranks[0]}
    assert verdict_of(judged(ranks, before)).culprits == (3,)


# Sends and receives


def receive(source: int, line: str = "train.py:40") -> tuple[wire.TraceFrame, ...]:
    return inside("recv", line, tensor="<Tensor>", src=str(source), group="None")


def test_receives_that_wait_for_each_other_are_a_deadlock_if_nothing_moves() -> None:
    ranks: dict[int, Stacks] = {0: receive(1), 1: receive(0)}
    assert verdict_of(judged(ranks)).kind == "undecided"
    verdict = verdict_of(judged(ranks, ranks))
    assert (verdict.kind, verdict.parties, verdict.progress) == ("deadlock", ((0,), (1,)), "none")


def test_a_send_and_its_receive_are_no_deadlock() -> None:
    send = inside("send", dst="1", group="None")
    ranks: dict[int, Stacks] = {0: send, 1: receive(0)}
    assert verdict_of(judged(ranks, ranks)).kind == "undecided"


def test_a_chain_of_receives_leads_to_its_end_alone() -> None:
    ranks: dict[int, Stacks] = {0: DATALOADER, 1: receive(0), 2: receive(1), 3: receive(2)}
    verdict = verdict_of(judged(ranks))
    assert (verdict.culprits, fold(verdict.victims)) == ((0,), "1-3")


def test_who_nobody_receives_from_is_not_named() -> None:
    ranks: dict[int, Stacks] = {0: receive(1), 1: receive(0), 2: receive(0), 3: SLEEP}
    assert verdict_of(judged(ranks, ranks)).kind == "deadlock"


# Threads


def test_a_thread_that_the_main_one_waits_for_counts() -> None:
    saver = thread(REDUCE, "saver")
    waits = (thread(LOCK), saver)
    verdict = verdict_of(judged({0: waits, 1: waits, 2: SLEEP, 3: waits}))
    assert verdict.culprits == (2,)
    assert any("in thread saver" in line for line in verdict.evidence)


def test_a_thread_that_nobody_waits_for_does_not() -> None:
    goes_on = (thread(SLEEP), thread(REDUCE, "saver"))
    assert verdict_of(judged({0: REDUCE, 1: goes_on, 2: REDUCE})).culprits == (1,)


# Through the same stages as a recorded job


def test_nobody_is_asked_where_there_are_only_files() -> None:
    judgement = Engine().judge(observed(judged({0: REDUCE, 1: REDUCE, 2: SLEEP})))
    assert [verdict.culprits for verdict in judgement.frame.verdicts] == [(2,)]
    assert judgement.look_requests == ()


def test_stacks_alone_are_never_healthy() -> None:
    healthy = replace(observed(judged({0: SLEEP, 1: SLEEP})), health="healthy")
    assert Engine().judge(healthy).frame.health == "undecided"


# From a stack to a call


@pytest.mark.parametrize(("frames", "kind", "role"), [
    (inside("all_reduce"), "all_reduce", "collective"),
    (inside("_all_gather_base"), "all_gather_into_tensor", "collective"),
    (inside("monitored_barrier"), "monitored_barrier", "collective"),
    (inside("an_op_of_tomorrow"), "an_op_of_tomorrow", "collective"),
    ((frame(f"{C10D}:9", "all_gather"), *inside("all_gather_object")), "all_gather_object",
     "collective"),
    ((frame("/usr/lib/python3.11/pickle.py:9"), *inside("gather_object")), "gather_object",
     "collective"),
    (inside("recv"), "recv", "p2p"),
    (inside("batch_isend_irecv"), "batch_isend_irecv", "p2p"),
    (inside("init_process_group"), "init_process_group", "rendezvous"),
    (inside("new_subgroups"), "new_subgroups", "rendezvous"),
    ((frame(f"{TORCH}/distributed/rendezvous.py:1", "_create_c10d_store"),
      *inside("init_process_group")), "init_process_group", "rendezvous"),
    ((frame(f"{TORCH}/distributed/_functional_collectives.py:8", "all_reduce"), MAIN),
     "all_reduce", "collective"),
    ((frame(f"{TORCH}/distributed/_functional_collectives.py:8", "wait_tensor"), MAIN),
     "a wait for an op", "implicit"),
    ((frame(f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_param_group.py:5", "f"), MAIN),
     "a wait for an op", "implicit"),
    ((frame(f"{TORCH}/nn/parallel/distributed.py:1223",
            "DistributedDataParallel._distributed_broadcast_coalesced"), MAIN),
     "broadcast", "implicit"),
    ((frame(f"{TORCH}/distributed/utils.py:283", "_verify_param_shape_across_processes"), MAIN),
     "all_gather", "implicit"),
    (BACKWARD, "the backward pass", "implicit"),
    ((frame(f"{TORCH}/cuda/__init__.py:1085", "synchronize"), MAIN), "a wait for a device",
     "implicit"),
    ((frame(f"{TORCH}/cuda/streams.py:105", "Stream.synchronize"), MAIN), "a wait for a device",
     "implicit"),
    ((frame("train.py:7", source="work.wait()"), MAIN), "a wait for an op", "implicit"),
    ((has(frame("train.py:7"), work="<torch._C._distributed_c10d.Work at 0x7f>"), MAIN),
     "a wait for an op", "implicit"),
    ((frame("/tmp/torchinductor_me/ab/cab.py:9", "call"), MAIN), "compiled code", "implicit"),
])  # fmt: skip
def test_calls(frames: tuple[wire.TraceFrame, ...], kind: str, role: str) -> None:
    call = call_of(thread(frames))
    assert call is not None
    assert (call.kind, call.role) == (kind, role)


@pytest.mark.parametrize("frames", [
    (),
    ASLEEP,
    SLEEP,
    DATALOADER,
    (frame(f"{TORCH}/distributed/checkpoint/filesystem.py:9", "_write_item"), MAIN),
    # Programs that are started by torch's launcher in the same process.
    (frame("train.py:33"), frame(f"{TORCH}/distributed/elastic/multiprocessing/api.py:9", "_wrap")),
])  # fmt: skip
def test_no_calls(frames: tuple[wire.TraceFrame, ...]) -> None:
    assert call_of(thread(frames)) is None


@pytest.mark.parametrize("frames", [
    BACKWARD,
    (frame(f"{C10D}:9", "get_rank"), MAIN),
    (frame(f"{C10D}:9", "_object_to_tensor"), MAIN),
])  # fmt: skip
def test_what_runs_there_does_not_wait(frames: tuple[wire.TraceFrame, ...]) -> None:
    assert call_of(thread(frames, active=True)) is None


def wrapped(
    kwargs: str, args: str = "(<Tensor at 0x7f>)", group: str = PROCESS_GROUP
) -> tuple[wire.TraceFrame, ...]:
    call = has(frame(f"{C10D}:3", "all_reduce"), tensor="<Tensor>", op="<Op>", group=group)
    return (call, has(WRAPPER, args=args, kwargs=kwargs), frame("train.py:40"))


@pytest.mark.parametrize(("frames", "group"), [
    (wrapped("{}"), "default_pg"),
    (wrapped("{}", "(<Tensor at 0x7f>, <Op at 0x7f>)"), "default_pg"),
    (wrapped("{}", "(<Tensor at 0x7f>, <Op at 0x7f>, <ProcessGroup at 0x7f>)"), ""),
    (wrapped("{}", "([<Tensor at 0x7f>, <Tensor at 0x7f>], ...)"), ""),
    (wrapped('{"group": None}'), "default_pg"),
    (wrapped('{"group": <ProcessGroup at 0x7f>}'), ""),
    (wrapped('{"op": <Op>, ...}'), ""),
    (wrapped("{}", "", "None"), "default_pg"),
    (wrapped("", "", '"tp"'), "tp"),
    (REDUCE, ""),
])  # fmt: skip
def test_the_group_is_told_by_what_the_call_was_given(
    frames: tuple[wire.TraceFrame, ...], group: str
) -> None:
    call = call_of(thread(frames))
    assert call is not None
    assert call.group == group


@pytest.mark.parametrize(("variables", "peer"), [
    ({"src": "3", "group": "None"}, 3),
    ({"src": "None", "group": "None", "group_src": "2"}, 2),
    ({"src": "None", "group": PROCESS_GROUP, "group_src": "2"}, None),  # counted in its group
    ({"src": "None", "group": "None", "group_src": "None"}, None),
    ({"src": "9" * 40}, None),
    ({}, None),
])  # fmt: skip
def test_the_peer_of_a_receive(variables: dict[str, str], peer: int | None) -> None:
    call = call_of(thread(inside("recv", **variables)))
    assert call is not None
    assert call.peer == peer


def test_where_the_default_group_is_known_it_is_not_missed() -> None:
    verdict = verdict_of(judged({0: wrapped("{}"), 1: wrapped("{}"), 2: SLEEP}))
    assert "of default_pg" in verdict.headline
    assert not any("group" in text for text in verdict.missing)


# lines that are not known


RUNS = thread((frame("train.py:35"), MAIN), active=True, gil=True)
UNKNOWN = inside("all_reduce", "train.py:0")


@pytest.mark.parametrize(("one", "other", "order"), [
    ("train.py:40", "train.py:50", "earlier"),
    ("train.py:0", "train.py:50", "unknown"),
    ("train.py:50", "train.py:0", "unknown"),
    ("train.py:0", "train.py:0", "unknown"),
])  # fmt: skip
def test_a_line_of_0_is_unknown_and_neither_before_nor_after_another(
    one: str, other: str, order: str
) -> None:
    mine, theirs = (path_of((frame(line), MAIN)) for line in (one, other))
    assert program_order(mine, theirs)[0] == order


@pytest.mark.parametrize(("then", "now", "progress"), [
    ("train.py:33", "train.py:33", "none"),
    ("train.py:33", "train.py:34", "active"),
    ("train.py:0", "train.py:34", "unknown"),
    ("train.py:33", "train.py:0", "unknown"),
    ("train.py:0", "train.py:0", "unknown"),
])  # fmt: skip
def test_who_is_at_an_unknown_line_neither_moves_nor_stands_still(
    then: str, now: str, progress: str
) -> None:
    sleeps = (frame("/usr/lib/python3.11/pathlib.py:1044", "Path.open"),)
    old: dict[int, Stacks] = {0: REDUCE, 1: REDUCE, 2: (*sleeps, frame(then), MAIN), 3: REDUCE}
    new: dict[int, Stacks] = {**old, 2: (*sleeps, frame(now), MAIN)}
    assert verdict_of(judged(new, old)).progress == progress


@pytest.mark.parametrize(("call", "named"), [(REDUCE, (2,)), (UNKNOWN, ())])
def test_that_all_others_are_at_one_place_takes_known_lines(
    call: Stacks, named: tuple[int, ...]
) -> None:
    assert verdict_of(judged({0: call, 1: call, 2: RUNS, 3: call})).culprits == named


def test_an_unknown_line_is_not_shown_as_a_number() -> None:
    verdict = verdict_of(judged({0: UNKNOWN, 1: UNKNOWN, 2: SLEEP, 3: UNKNOWN}))
    assert "all_reduce, called at train.py (train)" in verdict.headline


def test_ranks_in_init_rpc_are_at_a_store_of_its_own() -> None:
    store = frame(f"{TORCH}/distributed/rendezvous.py:199", "_create_c10d_store")
    rpc = frame(f"{TORCH}/distributed/rpc/__init__.py:190", "init_rpc")
    verdict = verdict_of(judged(dict.fromkeys(range(2), (store, rpc, MAIN))))
    assert "RPC's store" in verdict.why.text
    assert "init_method in the options of init_rpc" in verdict.next


def test_who_waits_for_a_remote_call_or_answers_one_is_no_culprit_by_stacks() -> None:
    """Another rank may keep it waiting; which one, stacks of the other threads may tell."""
    api = f"{TORCH}/distributed/rpc/api.py"
    calls = (frame(f"{api}:842", "rpc_sync"), frame("train.py:12", "main"))
    serves = (frame(f"{api}:257", "_all_gather"), frame(f"{api}:382", "shutdown"), MAIN)
    ranks = dict.fromkeys(range(6), inside("all_reduce"))
    for one in (calls, serves):
        verdict = verdict_of(judged({**ranks, 6: one}, {**ranks, 6: one}))
        assert (verdict.kind, verdict.culprits) == ("undecided", ())
    assert "default_pg" not in verdict.headline
