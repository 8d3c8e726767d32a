"""Numbers are sampled at the end of ops and steps: faults are named, and training is the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from features.tensor_checks.sampled_ranks import is_off, sampled, samples, state, watch
from frtop_probe.ring.layout import MarkKind, StatusCell
from frtop_probe.ring.marks import read_marks, watched
from recorder.interactive_rank import Ranks, interactive_ranks, notes, run
from waiting import wait_for

pytestmark = pytest.mark.torch

MODEL = """
import hashlib
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
ddp = torch.nn.parallel.DistributedDataParallel(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
flip = nan = False
def hook(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    def then(future):
        if flip and rank == 2:
            bucket.buffer().view(torch.int32)[3] ^= 1
        return bucket.buffer()
    return work.get_future().then(then)
def train(steps):
    for _ in range(steps):
        opt.zero_grad()
        loss = ddp(torch.randn(4, 8) + rank).square().mean()
        (loss * (float("nan") if nan and rank == 1 else 1)).backward()
        opt.step()
first = [one.detach().clone() for one in net.parameters()]
def restore():
    global flip, nan
    flip = nan = False
    torch.manual_seed(0)
    for one, old in zip(net.parameters(), first):
        one.data.copy_(old)
def catch_up():
    # Other optimizers may have counted steps that this one has not made.
    steps = lifecycle.recorder.steps
    before = steps.current
    while steps.current == before:
        train(1)
def digest():
    tensors = [*net.parameters(), torch.get_rng_state(), torch.randn(3)]
    return hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in tensors)).hexdigest()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    folder = tmp_path_factory.mktemp("numbers") / "rings"
    with interactive_ranks(folder, 3) as found:
        yield tuple(found)


@pytest.fixture(scope="module")
def trained(ranks: Ranks) -> None:
    run(ranks, MODEL)
    run(ranks, "train(3)")


@pytest.fixture
def model(ranks: Ranks, trained: None) -> None:
    """As if no other test had used it."""
    run(ranks, "restore(); catch_up()")


@pytest.mark.usefixtures("model")
def test_a_nan_is_named_with_its_rank_op_and_step(ranks: Ranks) -> None:
    said = [len(notes(rank)) for rank in ranks]
    found = sampled(ranks, "before = lifecycle.recorder.steps.current; train(2); nan = True\n"
                           "train(1); nan = False")  # fmt: skip
    (bad,) = found.bad
    assert (bad.rank, bad.what, bad.others_clean) == (1, "NaN", (0, 2))
    assert bad.sample.sample.kind == "all_reduce"
    run(ranks, f"assert before + 2 == {bad.sample.sample.step}, before")
    assert bad.sample.sample.site
    assert not found.ops  # all got the NaN
    new = [notes(rank)[old:] for rank, old in zip(ranks, said, strict=True)]
    assert any("NaN in the input of all_reduce" in text for text in new[1])
    assert not any("NaN in the input" in text for text in new[0])


@pytest.mark.usefixtures("model")
def test_a_bit_in_one_ranks_bucket_is_named_with_op_and_step(ranks: Ranks) -> None:
    run(ranks, "ddp.register_comm_hook(None, hook); train(1)")
    found = sampled(ranks, "before = lifecycle.recorder.steps.current; train(2); flip = True\n"
                           "train(1); flip = False; train(1)")  # fmt: skip
    (one,) = found.ops
    assert (one.odd, one.kind, one.changed) == ((2,), "all_reduce", True)
    assert one.equal_before == one.number - 1
    run(ranks, f"assert before + 2 == {one.step}, before")


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("bit", [2, 22])
def test_a_bit_in_a_gradient_is_named_where_it_reaches_a_parameter(ranks: Ranks, bit: int) -> None:
    found = sampled(ranks, f"""
def change(optimizer, *_):
    if rank == 1:
        net[2].bias.grad.view(torch.int32)[1] ^= 1 << {bit}
train(1)
before = lifecycle.recorder.steps.current
added = opt.register_step_pre_hook(change)
train(1)
added.remove()
""", steps=5, ops=0)  # fmt: skip
    # The hook of all optimizers runs before that of one: what it does shows in the parameters.
    # The step is a tenth of the gradient: rounding may drop its low bits, on some machines only.
    named = [each for each in found.steps if each.role == "parameter"]
    run(
        ranks,
        f"""
every = [torch.empty(2) for _ in range(3)]
dist.all_gather(every, net[2].bias.data)
assert torch.equal(every[0], every[2])
assert torch.equal(every[0], every[1]) == {not named}, every
""",
    )
    if bit == 22:
        (one,) = named
        assert one.odd == (1,)
        assert one.names == ("parameter 3 (float32, 2 values)",)
        assert one.equal_before == one.step - 1
        run(ranks, f"assert before == {one.step}")


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "uint8", "complex64"])
def test_healthy_ops_accuse_nobody(ranks: Ranks, dtype: str, tmp_path: Path) -> None:
    if dtype == "complex64":
        run(ranks, f"""
try:
    dist.broadcast(torch.ones(1, dtype=torch.{dtype}), 0)
except RuntimeError:
    if rank == 0: open({str(tmp_path / "refused")!r}, "w").close()
""")  # fmt: skip
        if (tmp_path / "refused").exists():
            pytest.skip("gloo of this torch takes no complex numbers")
    found = sampled(ranks, f"""
kind = torch.{dtype}
own = torch.arange(12).to(kind) + rank
dist.all_reduce(own.clone())
dist.broadcast(own.clone(), 1)
dist.all_gather([torch.empty(12, dtype=kind) for _ in range(3)], own.clone())
splits = [(rank + other) % 3 + 1 for other in range(3)]
dist.all_to_all_single(torch.empty(6, dtype=kind), own[:6].clone(), splits, splits)
dist.reduce_scatter(torch.empty(4, dtype=kind), list(own.clone().chunk(3)))
dist.all_to_all_single(torch.empty(12, dtype=kind), own.clone())
dist.scatter(torch.empty(4, dtype=kind), list(own.chunk(3)) if rank == 0 else None, src=0)
dist.reduce(own.clone(), 0)
peer = rank ^ 1
if rank < 2:
    jobs = [dist.isend(own.clone(), peer), dist.irecv(torch.empty_like(own), peer)]
    for job in jobs: job.wait()
waits = [dist.all_reduce(own.clone(), async_op=True) for _ in range(4)]
for work in waits: work.wait()
dist.barrier()
""")  # fmt: skip
    assert (found.ops, found.bad, found.steps) == ((), (), ())
    assert dict(found.equal_ops) == {("0", "0-2", 0): 7}


@pytest.mark.usefixtures("model")
def test_training_is_equal_bit_by_bit(ranks: Ranks) -> None:
    run(ranks, "restore(); torch.manual_seed(5); train(4); plain = digest(); restore()")
    found = sampled(ranks, "torch.manual_seed(5); train(4); watched = digest()", steps=100)
    run(ranks, "assert plain == watched")
    assert sum(found.equal_ops.values()) == 4
    assert found.equal_steps == {"gradient": 4, "parameter": 4}


@pytest.mark.usefixtures("model")
def test_modes_and_profilers_see_nothing(ranks: Ranks) -> None:
    program = """
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode
class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func)); return func(*args, **(kwargs or {}))
class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(str(func)); return func(*args, **(kwargs or {}))
def record():
    global seen
    seen = []
    with Ops(), Functions(), torch.profiler.profile() as profile:
        train(2)
    events = sorted({one.name for one in profile.events() if one.name.startswith("aten::")})
    return seen, events
"""
    run(ranks, program + "train(2); plain = record()")
    sampled(ranks, "watched = record()", steps=100)
    run(ranks, "assert plain == watched, (plain, watched)")


@pytest.mark.usefixtures("model")
def test_a_watch_ends_by_itself_and_leaves_nothing_behind(ranks: Ranks) -> None:
    watch(ranks, ops=2)
    run(ranks, "train(4)")
    wait_for(lambda: all(map(is_off, ranks)), "the watch to end")
    watch(ranks, ops=1000, seconds=1)
    wait_for(lambda: all(map(is_off, ranks)), "the watch to end")
    run(ranks, "numbers = lifecycle.recorder.watch\n"
               "assert not numbers.watching and not numbers.unfinished")  # fmt: skip
    before = state(ranks[0]).samples
    run(ranks, "train(2)")
    assert state(ranks[0]).samples == before


def test_what_is_copied_after_a_watch_gives_its_memory_back(ranks: Ranks) -> None:
    """A step that has begun goes on copying; later watches have the whole buffer."""
    ranks[0].run("""
from frtop_probe.features.tensor_checks.in_rank.watch import WatchPlan
from frtop_probe.features.tensor_checks.in_rank.stats import Sample
numbers = lifecycle.recorder.watch
def begin():
    numbers.start(WatchPlan(1, 1000, time.monotonic_ns() + 60 * 10**9))
def take():
    numbers._take(Sample(0, 0, "x", "input", "issue", 0, 0, 0), [torch.zeros(2 << 20)])
for _ in range(3):
    begin(); take(); numbers.stop(join=True); take()
begin()
for _ in range(40):
    take()
    wait_for(lambda: numbers._buffer.fill() < 0.5)
numbers.stop(join=True)
assert numbers.skipped == 0, numbers.skipped
assert len(numbers.samples) == 40
""")


def test_operators_are_named_and_no_other_watch_is_ended(ranks: Ranks) -> None:
    (rank, *_) = ranks
    watch((rank,), ops=10, by="mo@node4 PID 17")
    first = state(rank)
    assert (first.on, first.by) == (True, "mo@node4 PID 17")
    watch((rank,), ops=10, by="ada")
    second = state(rank)
    assert (second.watch, second.by) == (first.watch + 1, "ada")
    watch((rank,), watch=first.watch, by="mo@node4 PID 17")
    assert state(rank).every == 1  # it is another one's by now
    watch((rank,), watch=second.watch, by="x" * 500)
    wait_for(partial(is_off, rank), "the end")
    assert state(rank).by == "x" * 120  # who has ended it
    watch((rank,), by="somebody")  # nothing to end
    assert state(rank).by == "x" * 120


def test_an_order_that_makes_no_sense_is_refused(ranks: Ranks) -> None:
    for broken in ({"every": -1}, {"ops": "many"}, {"groups": ["x"]}, {"seconds": 1.5}):
        reply, _ = ranks[0].request(ask="ChangeRecording", settings={"numbers": broken})
        assert reply["error"] == "failed", broken
    reply, _ = ranks[0].request(ask="ReadSamples", after=-1)
    assert reply["error"] == "failed"


def test_a_note_of_the_operator_is_in_the_ring(ranks: Ranks) -> None:
    ranks[0].request(ask="ChangeRecording", note="look\x1b[31m here")
    wait_for(lambda: any("operator: look" in one for one in notes(ranks[0])), "the note")
    assert not any("\x1b" in one for one in notes(ranks[0]))


@pytest.mark.usefixtures("model")
def test_phases_are_switched_while_it_runs(ranks: Ranks) -> None:
    rank = ranks[0]

    def backwards() -> int:
        return sum(row.kind is MarkKind.BACKWARD for row in read_marks(rank.ring))

    run(ranks, "train(2)")
    assert backwards() == 0
    reply, _ = rank.request(ask="ChangeRecording", settings={"phases": True})
    assert reply["recorded"]["settings"]["phases"] is True
    run(ranks, "train(2)")
    assert backwards() == 2
    assert MarkKind.BACKWARD in watched(rank.ring)
    reply, _ = rank.request(ask="ChangeRecording", settings={"phases": False})
    run(ranks, "train(2)")
    assert (backwards(), reply["recorded"]["settings"]["phases"]) == (2, False)
    assert MarkKind.BACKWARD not in watched(rank.ring)


@pytest.mark.usefixtures("model")
def test_nothing_is_compiled_again(ranks: Ranks) -> None:
    run(ranks, """
from torch._dynamo.utils import counters
compiled = torch.compile(ddp, backend="eager")
def again(steps):
    for _ in range(steps):
        opt.zero_grad()
        compiled(torch.randn(4, 8) + rank).square().mean().backward()
        opt.step()
    return counters["stats"]["unique_graphs"], dict(counters["graph_break"])
plain = again(4)
""")  # fmt: skip
    found = sampled(ranks, "watched = again(4)", steps=100)
    run(ranks, "assert plain == watched == again(2), (plain, watched)")
    assert not found.ops
    assert sum(found.equal_ops.values()) == 4


def test_what_is_waited_for_in_cpp_is_read(ranks: Ranks) -> None:
    """DDP's buckets, of several backwards in a step too, and its broadcasts before a forward."""
    run(ranks, """
small = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
norm = torch.nn.parallel.DistributedDataParallel(small)
optimizer = torch.optim.SGD(norm.parameters(), lr=0.1)
def accumulate(steps):
    for _ in range(steps):
        for _ in range(2):
            norm(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
""")  # fmt: skip
    found = sampled(ranks, "accumulate(3)")
    assert not found.any_fault
    assert [state(rank).unseen for rank in ranks] == [0, 0, 0]
    inputs = [one for one in found.figures if one.role == "input"]
    outputs = [one for one in found.figures if one.role == "output"]
    assert sum(one.samples for one in inputs) == sum(one.samples for one in outputs)


SCALED = """
import frtop_probe
small = torch.nn.Linear(4, 2)
scaled = torch.nn.parallel.DistributedDataParallel(small) if {ddp} else small
adapted = torch.optim.SGD(small.named_parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
for step in range(4):
    adapted.zero_grad()
    loss = scaled(torch.ones(3, 4)).square().mean()
    scaler.scale(loss * (float("inf") if rank == 1 and step == 1 else 1)).backward()
    scaler.step(adapted)
    scaler.update()
    frtop_probe.step(lifecycle.recorder.steps.current)
"""


def test_a_loss_scale_is_sampled_also_where_a_step_is_left_out(ranks: Ranks) -> None:
    found = sampled(ranks, SCALED.format(ddp=True), steps=100)
    (scale,) = found.scales
    (off,) = scale.back_offs
    assert (off.ranks, off.before, off.after) == ((0, 1, 2), 1024.0, 512.0)
    assert scale.updates == 4
    assert {(one.rank, one.left_out) for one in found.bad} == {(1, True)}
    assert not found.any_fault
    found = sampled(ranks, SCALED.format(ddp=False), steps=100)
    (scale,) = found.scales
    assert [one.ranks for one in scale.back_offs] == [(1,)]
    assert scale.difference is not None
    assert scale.difference.odd == (1,)


def test_dtypes_of_a_sharded_model_and_a_cast_that_overflows(ranks: Ranks) -> None:
    program = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
torch.manual_seed(0)
whole = fully_shard(torch.nn.Linear(6, 6), mesh=init_device_mesh("cpu", (3,)), mp_policy=policy)
sharded = torch.optim.SGD(whole.named_parameters(), lr=0.0)
def shards():
    sharded.zero_grad()
    whole(torch.ones(3, 6)).float().square().mean().backward()
    sharded.step()
shards()
"""
    run(ranks, program)
    found = sampled(ranks, "shards()", steps=100)
    dtypes = {(one.owner.split()[0], one.role, one.dtype, one.shard) for one in found.figures}
    assert {
        ("all_gather_into_tensor", "input", "float16", False),
        ("reduce_scatter_tensor", "input", "float32", False),
        ("optimizer", "parameter", "float32", True),
    } <= dtypes
    assert not found.any_fault  # inputs are views into the middle of the output
    sums = [one for one in found.figures if one.role == "parameter"]
    assert sum(one.values for one in sums) == 6 * 6 + 6
    found = sampled(ranks, """
if rank == 2: whole.weight._local_tensor[0, 0] = 1e5
shards(); shards()
""", steps=100)  # fmt: skip
    first = found.bad[0]
    assert (first.rank, first.what, first.sample.sample.dtype) == (2, "Inf", "float16")
    assert first.cast is None or first.cast.kind == "weight"


def test_ops_are_thinned_by_their_numbers_where_nobody_counts_them(ranks: Ranks) -> None:
    sampled(ranks, "")  # a first watch makes the buffer
    run(ranks, "blocker = lifecycle.recorder.watch._buffer.reserve(40 * 2**20)")
    watch(ranks, ops=10_000)
    run(ranks, "if rank: blocker.free = True\n[dist.all_reduce(torch.ones(4)) for _ in range(200)]")
    found = samples(ranks)
    by_rank = [{one.sample.number for one in found if one.rank == rank} for rank in range(3)]
    assert by_rank[0] < by_rank[1] == by_rank[2]
    assert all(number % 243 == 0 for number in sorted(by_rank[0])[6:])
    assert (state(ranks[0]).thinned > 190, state(ranks[1]).thinned) == (True, 0)
    run(ranks, "blocker.free = True")


@pytest.mark.usefixtures("model")
def test_a_watch_begins_in_the_step_that_all_are_asked_for(ranks: Ranks) -> None:
    """Also where ranks got the order at different times."""
    step = ranks[0].ring.cell(StatusCell.STEP)
    watch(ranks[:1], ops=1000, steps=9, from_step=step + 3)
    run(ranks, "train(1)")
    watch(ranks[1:], ops=1000, steps=9, from_step=step + 3)
    run(ranks, "train(3)")
    steps = {(one.rank, one.sample.step) for one in samples(ranks)}
    assert steps == {(rank, step + more) for rank in range(3) for more in (3, 4)}


def test_call_sites_are_switched_while_it_runs(ranks: Ranks) -> None:
    rank = ranks[0]

    def sites() -> list[int]:
        rows = map(rank.ring.event, range(rank.newest() - 2, rank.newest() + 1))
        return [row.site for row in rows if row is not None]

    reply, _ = rank.request(ask="ChangeRecording", settings={"sites": False})
    assert reply["recorded"]["settings"]["sites"] is False
    run(ranks, "[dist.all_reduce(torch.ones(1)) for _ in range(3)]")
    assert sites() == [0, 0, 0]
    reply, _ = rank.request(ask="ChangeRecording", settings={"sites": True})
    run(ranks, "[dist.all_reduce(torch.ones(1)) for _ in range(3)]")
    assert all(sites())
