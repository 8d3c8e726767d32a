"""Fetches, steps and phases of real programs, beside what the programs measured themselves."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from frtop_probe.recorder.marks import phases
from frtop_probe.ring.layout import MarkKind, StatusCell
from frtop_probe.ring.marks import MarkRow, watched
from recorder.rank_runner import FinishedRank, marks, ops, run

pytestmark = pytest.mark.torch
FETCH, STEP, OPTIMIZER = MarkKind.FETCH, MarkKind.STEP, MarkKind.OPTIMIZER
FORWARD, BACKWARD = MarkKind.FORWARD, MarkKind.BACKWARD
PHASES = (FORWARD, BACKWARD, OPTIMIZER)
LOOSE_NS = 5_000_000

SLEEPS = """
    import os, sys, time, torch, torch.distributed as dist, frtop_probe
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, Dataset

    truth = []
    def slept(kind, seconds):
        began = time.monotonic_ns()
        time.sleep(seconds)
        truth.append((kind, time.monotonic_ns() - began))

    class Slow(Dataset):
        def __len__(self): return 12
        def __getitem__(self, i):
            slept("fetch", 0.004)
            return torch.ones(4)

    class Slowly(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            slept("forward", 0.003)
            return x.clone()
        @staticmethod
        def backward(ctx, grad):
            slept("backward", 0.005)
            return grad

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
        def forward(self, x): return Slowly.apply(self.layer(x))

    class SlowSGD(torch.optim.SGD):
        def step(self, closure=None):
            slept("optimizer", 0.002)
            return super().step(closure)

    def labelled(x):
        with torch.autograd.profiler.record_function("mine"):
            y = x + 1
        return y

    dist.init_process_group("gloo")
    assert torch.jit.script(labelled)(torch.ones(1)) == 2  # TorchScript reads how labels work
    model = DDP(Net())
    optimizer = SlowSGD(model.parameters(), lr=0.1)
    for number, batch in enumerate(DataLoader(Slow(), batch_size=1)):
        loss = model(batch).sum() / 3
        if number % 3 < 2:
            with model.no_sync(): loss.backward()
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        frtop_probe.step(samples=3)
    print(truth)
    dist.destroy_process_group()
"""


def durations(rows: Sequence[MarkRow]) -> list[int]:
    return [row.end_ns - row.begin_ns for row in rows]


def only(ended: FinishedRank) -> FinishedRank:
    assert ended.code == 0, ended.err
    assert ended.ring.cell(StatusCell.HOOK_ERRORS) == 0
    return ended


def test_marks_last_as_long_as_the_sleeps_in_them(tmp_path: Path) -> None:
    """Gradients of three batches are accumulated: three forwards and backwards a step."""
    ended = only(run(SLEEPS, tmp_path / "rings", FRTOP_PHASES="1")[0])
    truth: list[tuple[str, int]] = ast.literal_eval(ended.out)
    ring = ended.ring
    assert watched(ring) == {FETCH, *PHASES}
    for kind in (FETCH, *PHASES):
        rows = marks(ring, kind)
        slept = [took for name, took in truth if name == kind.name.lower()]
        if kind is FETCH:
            rows.pop()  # the end of the data
        more = [row - took for row, took in zip(durations(rows), slept, strict=True)]
        # On a busy machine one takes longer now and then; `bench durations` has all of them.
        assert 0 <= min(more) < LOOSE_NS
    steps = marks(ring, STEP)
    assert [(row.number, row.samples) for row in steps] == [(n, 3) for n in range(1, 5)]
    assert {row.thread for row in marks(ring)} == {ring.header.main_ident}
    phase_rows = marks(ring, *PHASES)
    assert all(a.end_ns <= b.begin_ns for a, b in pairwise(phase_rows))
    # DDP waits for its ops in C++. That they are over is known when the next phase begins, and
    # not only at the next op, a fetch and a step later.
    begins = [row.begin_ns for row in marks(ring, OPTIMIZER)]
    reduced = [row.done_ns for row in ops(ring) if row.done_ns][-10::3]  # of each third backward
    known = [done < begin for done, begin in zip(reduced, begins, strict=True)]
    # Not each: gloo's thread may tell those who wait in C++ before it says that an op is over.
    assert any(known)
    each = [FORWARD, BACKWARD] * 3
    assert [row.kind for row in phase_rows] == [*each, OPTIMIZER] * 4
    assert [row.number for row in phase_rows] == [n for n in range(1, 5) for _ in [*each, 0]]


BARE = """
    import threading, torch, torch.distributed as dist, frtop_probe
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    from torch.utils.checkpoint import checkpoint

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        def forward(self, x):
            if x.sum() > 1e6: raise ValueError
            x.requires_grad_()
            x = checkpoint(self.one, x, use_reentrant=False)
            force, = torch.autograd.grad(self.two(x).sum(), x, create_graph=True)
            return self.two(x) + force.sum()

    dist.init_process_group("gloo")
    net, loss = Net(), torch.nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compiled = torch.compile(torch.nn.Linear(4, 1), backend="eager")

    frtop_probe.annotate("trains")
    for _ in range(2):
        loss(net(torch.ones(2, 4)), torch.ones(2, 1)).backward()
        with torch.no_grad(): net.two(torch.ones(2, 4))
        with torch.inference_mode(): net.two(torch.ones(2, 4))
        optimizer.step()
    frtop_probe.annotate("raises")
    try:
        net(torch.full((2, 4), 1e6))
    except ValueError:
        pass
    net.two(torch.ones(2, 4)).sum().backward()
    frtop_probe.annotate("compiled")
    for _ in range(2): compiled(torch.ones(2, 4)).sum().backward()
    frtop_probe.annotate("pipeline")
    stage = PipelineStage(torch.nn.Linear(4, 1), 0, 1, torch.device("cpu"))
    ScheduleGPipe(stage, 3, loss_fn=lambda a, b: (a - b).sum()).step(
        torch.ones(3, 4), target=torch.ones(3, 1)
    )
    frtop_probe.annotate("threads")
    for one in [threading.Thread(target=net.two, args=(torch.ones(2, 4),)) for _ in range(3)]:
        one.start()
        one.join()
    class Elsewhere(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x.clone()
        @staticmethod
        def backward(ctx, grad):  # as a checkpoint runs on a device: in a thread of the engine
            one = threading.Thread(target=net.two, args=(torch.ones(2, 4),))
            one.start()
            one.join()
            return grad
    frtop_probe.annotate("a backward in threads")
    Elsewhere.apply(net.two(torch.ones(2, 4))).sum().backward()
    frtop_probe.annotate("many")
    for _ in range(400): net.two(torch.ones(2, 4))
    net.two(torch.ones(2, 4)).sum().backward()
    dist.destroy_process_group()
"""


def test_a_forward_is_the_outermost_call_of_any_module_that_trains(tmp_path: Path) -> None:
    """Not evaluations, nor what a forward or a backward calls; a module for the loss is one."""
    ring = only(run(BARE, tmp_path / "rings", FRTOP_PHASES="1")[0]).ring
    found: dict[str, list[MarkRow]] = {}
    title = ""
    for row in marks(ring, *PHASES, MarkKind.NOTE):
        if row.kind is MarkKind.NOTE:
            title = ring.notes[row.number]
        else:
            assert row.end_ns >= row.begin_ns
            found.setdefault(title, []).append(row)
    kinds = {title: [row.kind for row in rows] for title, rows in found.items()}
    assert kinds["trains"] == [FORWARD, FORWARD, BACKWARD, OPTIMIZER] * 2
    assert kinds["raises"] == [FORWARD, FORWARD, BACKWARD]
    assert kinds["compiled"] == [FORWARD, BACKWARD] * 2
    # The stage is called once more, to learn the shapes.
    assert kinds["pipeline"] == [FORWARD] * (1 + 3) + [BACKWARD] * 3
    assert [row.thread for row in found["threads"]].count(ring.header.main_ident) == 0
    assert kinds["threads"] == [FORWARD] * 3
    assert kinds["a backward in threads"] == [FORWARD, BACKWARD]
    # A program whose forwards would fill the ring has none from then on.
    assert kinds["many"] == [FORWARD] * phases.MOST_FORWARDS
    assert kinds[phases.TOO_MANY] == [BACKWARD]
    assert watched(ring) == {FETCH, BACKWARD, OPTIMIZER}


FETCHES = """
    import torch, torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    class Numbers(Dataset):
        def __len__(self): return 9000
        def __getitem__(self, i): return float(i)

    class Inner(IterableDataset):
        def __iter__(self): yield from DataLoader(range(4))

    if __name__ == "__main__":
        dist.init_process_group("gloo")
        for _ in range(5): dist.all_reduce(torch.ones(1))
        for _ in DataLoader(Inner(), batch_size=2): pass
        for _ in DataLoader(Numbers(), batch_size=None): pass
        dist.destroy_process_group()
"""


def test_a_rank_that_only_fetches_issues_no_op_and_loses_none(tmp_path: Path) -> None:
    ring = only(run(FETCHES, tmp_path / "rings")[0]).ring
    assert ring.ops() == len(ops(ring)) == 5
    assert ring.cell(StatusCell.HEAD) < 10
    # 2 batches and the end of the outer loader, 9,000 and the end of the last one: nothing of the
    # loader inside.
    assert ring.cell(StatusCell.MARKS) == 3 + 9001
    assert len(marks(ring, FETCH)) == ring.shape.marks


OPTIMIZERS = """
    import torch, torch.distributed as dist, frtop_probe
    from torch.distributed.optim import ZeroRedundancyOptimizer

    dist.init_process_group("gloo")
    nets = [torch.nn.Linear(4, 4) for _ in range(40)]

    def train(title, optimizers, *closures):
        frtop_probe.annotate(title)
        for _ in range(3):
            for net, optimizer in zip(nets, optimizers):
                net(torch.ones(2, 4)).sum().backward()
                for closure in (*closures, None):
                    try:
                        optimizer.step(closure)
                    except ZeroDivisionError:
                        pass
                optimizer.zero_grad()

    def sgd(net): return torch.optim.SGD(net.parameters(), lr=0.1)
    def zero(net): return ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)

    train("two", [sgd(net) for net in nets[:2]])
    train("in another one", [zero(net) for net in nets[:2]])
    train("raises", [sgd(net) for net in nets[:2]], lambda: 1 / 0)
    train("many", [sgd(net) for net in nets])
    dist.destroy_process_group()
"""


def test_every_step_of_an_optimizer_is_one_mark(tmp_path: Path) -> None:
    """Also of one that calls another one, and of one that has raised; not of one per parameter."""
    ring = only(run(OPTIMIZERS, tmp_path / "rings")[0]).ring
    found: dict[str, list[MarkRow]] = {}
    title = ""
    for row in marks(ring):
        if row.kind is MarkKind.NOTE:
            title = ring.notes[row.number]
        found.setdefault(title, []).append(row)
    for name in ("two", "in another one", "raises"):
        rows = [row for row in found[name] if row.kind is OPTIMIZER]
        assert len(rows) == 6, name
        assert all(row.end_ns > row.begin_ns for row in rows)
    assert [row.number for row in found["two"] if row.kind is STEP] == [1, 2, 3]
    assert sum(row.kind is OPTIMIZER for row in found["many"]) == 16
    assert OPTIMIZER not in watched(ring)
    assert any("optimizer times are not recorded" in note for note in ring.notes.values())
    assert not marks(ring, BACKWARD)


ONLY = """
    import gc, threading, torch, torch.distributed as dist, frtop_probe

    dist.init_process_group("gloo")
    net = torch.nn.Linear(4, 4)
    net(torch.ones(2, 4)).sum().backward()

    def sgd(): return torch.optim.SGD(net.parameters(), lr=0.1)

    def train(title, optimizer, steps=2, **more):
        frtop_probe.annotate(title)
        for _ in range(steps):
            optimizer.step(**more)

    def interrupted():
        raise KeyboardInterrupt

    def trains_another():
        sgd().step()
        return 0.0

    one = sgd()
    train("alone", one, 3)
    try:
        train("raises", one, closure=interrupted)
    except KeyboardInterrupt:
        pass
    train("goes on", one)
    thread = threading.Thread(target=train, args=("in a thread", one))
    thread.start()
    thread.join()
    train("another inside", one, 1, closure=trains_another)
    two = sgd()
    train("a second", two)
    train("the first again", one)
    del one, two
    gc.collect()
    train("a third", sgd(), 12)
    train("the third is gone", sgd())
    frtop_probe.annotate("numbered")
    frtop_probe.step(40, samples=2)
    train("behind the number", sgd(), 1)
    frtop_probe.stop()
    train("stopped", sgd())
    dist.destroy_process_group()
"""
ENDED = {
    "alone": (3, [1, 2, 3]), "raises": (0, []), "goes on": (2, [4, 5]), "in a thread": (2, [6, 7]),
    "another inside": (1, [8]), "a second": (2, []), "the first again": (2, [9, 10]),
    "a third": (12, [11, 12]), "the third is gone": (2, []), "numbered": (0, [40]),
    "behind the number": (1, []),
}  # fmt: skip


def test_the_steps_of_an_only_optimizer_are_counted_like_those_of_several(tmp_path: Path) -> None:
    """By title: how many marks an optimizer has, and the steps that ended."""
    ring = only(run(ONLY, tmp_path / "rings")[0]).ring
    found: dict[str, tuple[int, list[int]]] = {}
    title = ""
    for row in marks(ring):
        if row.kind is MarkKind.NOTE:
            title = ring.notes[row.number]
            found[title] = 0, []
            continue
        count, ended = found[title]
        found[title] = count + (row.kind is OPTIMIZER), ended + [row.number] * (row.kind is STEP)
    assert found == ENDED
    assert ring.cell(StatusCell.STEP) == 40


API = """
    import torch, torch.distributed as dist, frtop_probe
    dist.init_process_group("gloo")
    frtop_probe.step(samples=5)
    frtop_probe.step(samples=torch.tensor(8))
    frtop_probe.step(7, samples=2.0)
    frtop_probe.step(samples="many")
    frtop_probe.step(samples=float("nan"))
    frtop_probe.step(samples=-3)
    frtop_probe.step(samples=2**80)
    frtop_probe.step(2**80)
    frtop_probe.annotate("checkpoint written")
    dist.destroy_process_group()
"""


def test_samples_are_what_the_job_says_and_nonsense_is_none(tmp_path: Path) -> None:
    ring = only(run(API, tmp_path / "rings")[0]).ring
    steps = [(row.number, row.samples) for row in marks(ring, STEP)]
    assert steps[:-1] == [(1, 5), (2, 8), (7, 2), (8, 0), (9, 0), (10, 0), (11, 2**62 - 1)]
    (note,) = marks(ring, MarkKind.NOTE)
    assert ring.notes[note.number] == "checkpoint written"
    assert note.begin_ns == note.end_ns >= marks(ring, STEP)[-1].end_ns
