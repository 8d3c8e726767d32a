"""torch's profiler in a rank, when it is asked for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frtop_probe.features.profile.files import profile_file
from recorder.interactive_rank import InteractiveRank, interactive_ranks
from waiting import wait_for

pytestmark = pytest.mark.torch

TOKEN = "0123456789abcdef"
TRAINING = """
def profile_of(recorder):
    return next(one for one in recorder.features if "ProfileRank" in one.handlers)
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def steps(count):
    for _ in range(count):
        net(torch.ones(2, 8)).sum().backward()
        dist.all_reduce(net.weight.grad)
        optimizer.step()
def recording():
    return torch.autograd._profiler_enabled()
"""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveRank]:
    with interactive_ranks(tmp_path_factory.mktemp("profile") / "rings", 1) as (one,):
        one.run(TRAINING)
        yield one


@pytest.fixture
def rank(trainer: InteractiveRank) -> InteractiveRank:
    trainer.run("[one.stop() for one in lifecycle.recorder.features]")
    return trainer


def ask(rank: InteractiveRank, action: str = "status", **options: Any) -> dict[str, Any]:
    header, data = rank.request(
        ask="ProfileRank", action=action, order=TOKEN, wait_s=30.0, **options
    )
    assert data == b""
    return header


def stage(rank: InteractiveRank, wanted: str) -> dict[str, Any]:
    return wait_for(lambda: (told := ask(rank))["stage"] == wanted and told, wanted)


def trace_of(rank: InteractiveRank) -> dict[str, Any]:
    path = profile_file(rank.ring.path, "trace")
    assert path.stat().st_mode & 0o777 == 0o600
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def test_steps_are_recorded_with_their_backwards(rank: InteractiveRank) -> None:
    rank.run("steps(2)")
    assert ask(rank, "begin", steps=2, shapes=True)["stage"] == "waiting"
    rank.run("steps(1); assert recording(); steps(2); assert not recording()")
    told = stage(rank, "ready")
    assert told["last"] - told["first"] == 1
    assert {one["name"] for one in told["files"]} == {"trace"}
    assert all(wall - at > 10**17 for at, wall in told["clocks"])
    trace = trace_of(rank)
    assert (trace["distributedInfo"]["rank"], trace["distributedInfo"]["world_size"]) == (0, 1)
    names = Counter(event["name"] for event in trace["traceEvents"])
    assert names["aten::linear"] == 2
    assert names["AddmmBackward0"] == 2
    assert names["c10d::allreduce_"] == 2
    assert all(names[f"ProfilerStep#{number}"] == 1 for number in (told["first"], told["last"]))
    ask(rank, "withdraw")
    assert not profile_file(rank.ring.path, "trace").exists()
    assert rank.ring.path.exists()


def test_a_profile_begins_at_its_step_after_a_warm_up(rank: InteractiveRank) -> None:
    rank.run("steps(1)")
    ask(rank, "begin", steps=1)
    rank.run("steps(2)")
    now = stage(rank, "ready")["last"] + 1
    rank.run("[one.stop() for one in lifecycle.recorder.features]")
    told = ask(rank, "begin", steps=2, at_step=now + 5, warm_up=2)
    assert (told["stage"], told["first"]) == ("waiting", 0)
    rank.run("steps(2); assert not recording()")
    assert ask(rank)["stage"] == "waiting"
    rank.run("steps(1); assert not recording()")
    told = ask(rank)
    assert (told["stage"], told["first"], told["lasted_ns"]) == ("warming", now + 5, 0)
    rank.run("steps(1); assert not recording()")
    rank.run("steps(1); assert recording(); steps(2); assert not recording()")
    told = stage(rank, "ready")
    assert (told["first"], told["last"]) == (now + 5, now + 6)
    names = Counter(event["name"] for event in trace_of(rank)["traceEvents"])
    assert names["c10d::allreduce_"] == 2
    assert names[f"ProfilerStep#{now + 5}"] == names[f"ProfilerStep#{now + 6}"] == 1
    assert names[f"ProfilerStep#{now + 4}"] == 0


@pytest.mark.parametrize("how", ["withdrawn", "the script profiles", "stop"])
def test_a_warm_up_leaves_nothing_when_it_ends_early(rank: InteractiveRank, how: str) -> None:
    rank.run("steps(1)")
    ask(rank, "begin", steps=2, warm_up=3)
    rank.run("steps(2); assert not recording()")
    assert ask(rank)["stage"] == "warming"
    if how == "withdrawn":
        ask(rank, "withdraw")
        rank.run("import time; begun = time.monotonic(); steps(1)")
        rank.run(
            "assert time.monotonic() - begun < 3.0"
        )  # a step took 5 s: the lock waited for itself
        told = stage(rank, "over")
        assert told["error"] == "gone"
    elif how == "stop":
        rank.run("[one.stop() for one in lifecycle.recorder.features]")
        assert ask(rank)["error"] == "gone"
    rank.run("""
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
    steps(1)
assert len(own.events()) > 5
steps(5)
assert not recording()
""")
    if how == "the script profiles":
        assert ask(rank)["error"] == "failed"
    assert not profile_file(rank.ring.path, "trace").exists()
    rank.run("[one.stop() for one in lifecycle.recorder.features]")
    ask(rank, "begin", steps=1)
    rank.run("steps(2)")
    stage(rank, "ready")  # the next order finds nothing in its way


def test_an_order_for_a_step_that_is_over_or_without_steps_is_refused(
    rank: InteractiveRank,
) -> None:
    rank.run("steps(3)")
    told = ask(rank, "begin", steps=1, at_step=2, warm_up=1)
    assert told["error"] == "failed"
    assert "already, and the profiler has to start at step 1" in told["help"]
    for wrong in ({"at_step": -1}, {"warm_up": 101}, {"at_step": True}, {"at_step": 1 << 49}):
        assert ask(rank, "begin", steps=1, **wrong)["error"]
    assert ask(rank, "begin", seconds=1.0, warm_up=1)["error"]
    rank.run("steps(2); assert not recording()")


def test_as_many_steps_as_were_ordered_are_recorded_whatever_goes_on_beside(
    rank: InteractiveRank,
) -> None:
    """The recorder's thread looks at the order now and then, on a busy host for long."""
    rank.run("""
from frtop_probe.features.profile.in_rank import requests as profile_requests
def slow(original=profile_requests.own_memory):
    time.sleep(0.15)
    return original()
saved["memory"], profile_requests.own_memory = profile_requests.own_memory, slow
""")
    try:
        for _ in range(3):
            ask(rank, "begin", steps=3)
            rank.run("for _ in range(40): steps(1); time.sleep(0.01)")
            told = stage(rank, "ready")
            assert told["last"] - told["first"] == 2
            rank.run("[one.stop() for one in lifecycle.recorder.features]")
    finally:
        rank.run("profile_requests.own_memory = saved.pop('memory')")


@pytest.mark.long
def test_an_op_that_is_over_soon_after_the_last_step_adds_no_step(tmp_path: Path) -> None:
    with interactive_ranks(tmp_path / "rings", 2) as (first, second):
        for one, delay_s in ((first, 0.0), (second, 0.005)):
            one.run(TRAINING)
            ask(first, "begin", steps=3)
            one.start(f"""
for _ in range(10):
    time.sleep({delay_s})
    work = dist.all_reduce(torch.ones(8), async_op=True)
    optimizer.zero_grad()
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    work.wait()
""")
        for one in (first, second):
            one.expect("done")
        told = stage(first, "ready")
        assert told["last"] - told["first"] == 2


def test_seconds_begin_and_end_at_ops(rank: InteractiveRank) -> None:
    ask(rank, "begin", seconds=0.1, execution=True)
    rank.run("""
deadline = time.monotonic() + 30
tensor = torch.ones(3)
while not recording():
    dist.all_reduce(tensor)
    assert time.monotonic() < deadline
while recording():
    dist.all_reduce(tensor)
    assert time.monotonic() < deadline
""")
    told = stage(rank, "ready")
    assert {one["name"] for one in told["files"]} == {"trace", "execution"}
    assert told["lasted_ns"] >= 0.1e9
    nodes = json.loads(profile_file(rank.ring.path, "execution").read_bytes())["nodes"]
    assert any(node["name"] == "c10d::allreduce_" for node in nodes)
    rank.run("steps(3); assert not recording()")


def test_a_script_that_profiles_itself_is_left_alone(rank: InteractiveRank) -> None:
    rank.run("""
import torch.profiler
own = torch.profiler.profile(schedule=torch.profiler.schedule(wait=100, warmup=1, active=1))
own.__enter__()
""")
    assert "profiles itself" in ask(rank, "begin", steps=1)["help"]
    rank.run("own.__exit__(None, None, None)")
    assert ask(rank, "begin", steps=5)["stage"] == "waiting"
    rank.run("steps(2)")
    assert ask(rank)["stage"] == "running"
    rank.run("""
assert recording()
with torch.autograd.profiler.profile() as later:
    steps(1)
assert later.key_averages() and not recording()
""")
    told = ask(rank)
    assert (told["stage"], told["error"]) == ("over", "failed")
    assert "profiles itself" in told["help"]


def test_nothing_stays_on_when_the_operator_is_gone(rank: InteractiveRank) -> None:
    ask(rank, "begin", steps=50)
    rank.run("steps(2); assert recording()")
    rank.run("profile_of(lifecycle.recorder)._session.lease = 0.0")
    rank.run("wait_for(lambda: lifecycle.recorder.enabled[0] == 2)")
    rank.run("dist.all_reduce(torch.ones(1)); assert not recording()")
    assert not profile_file(rank.ring.path, "trace").exists()


def test_a_rank_that_comes_to_no_step_gives_up(rank: InteractiveRank) -> None:
    rank.request(ask="ProfileRank", action="begin", order=TOKEN, wait_s=0.2, steps=1)
    told = stage(rank, "over")
    assert "reached no step in" in told["help"]
    rank.run("steps(2); assert not recording()")


def test_a_forked_child_records_nothing(rank: InteractiveRank) -> None:
    ask(rank, "begin", steps=2, stacks=True)
    rank.run("""
steps(2)
pid = os.fork()
if not pid:
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * 4096
    for _ in range(2000): torch.ones(3).add(1)
    before = resident()
    for _ in range(20000): torch.ones(3).add(1)
    os._exit(resident() - before > 8 << 20 or sys.getprofile() is not None)
assert os.waitpid(pid, 0)[1] == 0
steps(3)
""")
    assert stage(rank, "ready")["last"]
    assert any(e.get("cat") == "python_function" for e in trace_of(rank)["traceEvents"])


def test_it_does_not_begin_during_a_capture_or_in_a_backward(rank: InteractiveRank) -> None:
    rank.run("""
from frtop_probe.recorder.ops.graph_captures import captures
class Graph: pass
graph = Graph()
captures.begins(graph)
""")
    ask(rank, "begin", seconds=1.0)
    rank.run("""
dist.all_reduce(torch.ones(1)); assert not recording()
captures.over(graph)
class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g):
        dist.all_reduce(torch.ones(1))
        saved["in"] = recording()
        return g
InBackward.apply(torch.ones(1, requires_grad=True)).backward()
assert not saved["in"] and not recording()
dist.all_reduce(torch.ones(1)); assert recording()
""")


def test_orders_are_bounded(rank: InteractiveRank) -> None:
    for steps in (1000, -1, True, "1"):
        assert ask(rank, "begin", steps=steps)["error"] == "failed"
    for wrong in ({"seconds": float("nan")}, {}):
        assert ask(rank, "begin", **wrong)["error"] == "failed"
