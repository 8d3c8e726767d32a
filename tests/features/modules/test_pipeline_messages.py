"""Pipeline stages: their messages have a stage and a phase, collectives inside them a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from frtop_probe import wire
from frtop_probe.features.modules.in_rank.pipeline_messages import MAX_MESSAGES, PipelineMessages
from frtop_probe.ring.layout import StatusCell
from recorder.rank_runner import issuers, notes, run

WHAT = "activations", "gradients"
STAGES = """
    import sys, torch, torch.distributed as dist
    from torch.distributed import pipelining

    class Reduced(torch.autograd.Function):
        @staticmethod
        def forward(_, x): return x.clone()
        @staticmethod
        def backward(_, given):
            given = given.contiguous()
            dist.all_reduce(given, group=own)
            return given

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
        def forward(self, x):
            x = Reduced.apply(self.linear(x))
            dist.broadcast(x.detach().clone(), dist.get_rank(), group=own)
            return x

    class Part(torch.nn.Module):
        def __init__(self, names):
            super().__init__()
            self.layers = torch.nn.ModuleDict({name: Block() for name in names})
        def forward(self, x):
            for layer in self.layers.values(): x = layer(x)
            return x

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    own = [dist.new_group([one]) for one in range(2)][rank]
    each = int(sys.argv[2])  # stages of a rank
    stages = [
        pipelining.PipelineStage(Part([str(at)]), at, 2 * each, torch.device("cpu"))
        for at in range(rank, 2 * each, 2)
    ]
    schedule = getattr(pipelining, sys.argv[1])(
        stages if each > 1 else stages[0], n_microbatches=4,
        loss_fn=lambda out, wanted: (out - wanted).pow(2).sum(),
    )
    for _ in range(2):  # in the first step stages also agree on shapes
        dist.barrier()
        schedule.step(*([torch.ones(8, 4)] if rank == 0 else []),
                      **({"target": torch.ones(8, 4)} if rank else {}))
    dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.parametrize(("schedule", "each"), [
    ("Schedule1F1B", 1),
    pytest.param("ScheduleGPipe", 1, marks=pytest.mark.long),
    pytest.param("ScheduleInterleaved1F1B", 2, marks=pytest.mark.long),
    pytest.param("ScheduleInterleavedZeroBubble", 2, marks=pytest.mark.long),
])  # fmt: skip
def test_a_schedules_ops_have_their_stage_module_and_phase(
    tmp_path: Path, schedule: str, each: int
) -> None:
    """Backwards of stages begin where the gradient came, not at a loss."""
    folder = tmp_path / "rings"
    ended = run(STAGES, folder, schedule, str(each), ranks=2, FRTOP_MODULES="1")
    for rank, one in enumerate(ended):
        assert one.code == 0, one.err
        assert one.ring.cell(StatusCell.HOOK_ERRORS) == 0
        assert not notes(one.ring)
        found = issuers(one.ring)
        last = max(place for place, (kind, _) in enumerate(found) if kind == "barrier")
        stages = range(rank, 2 * each, 2)
        assert Counter(found[last + 1 :]) == dict.fromkeys(_issued(stages, 2 * each - 1), 4)


def _issued(stages: range, last: int) -> Iterator[tuple[str, wire.Issuer]]:
    """What stages issue for a microbatch, each op once."""
    for stage in stages:
        activations, gradients = (f"pipeline stage {stage}: {what}" for what in WHAT)
        yield "broadcast", wire.Issuer("forward", f"layers.{stage}", "Part")
        yield "all_reduce", wire.Issuer("backward", f"layers.{stage}", "Part")
        if stage:
            yield "recv", wire.Issuer("forward", "", "Part", activations)
            yield "send", wire.Issuer("backward", "", "Part", gradients)
        if stage < last:
            yield "send", wire.Issuer("forward", "", "Part", activations)
            yield "recv", wire.Issuer("backward", "", "Part", gradients)


class Tensor:
    """Stands for a tensor: only its identity matters."""


class Message:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def test_a_message_is_found_once_and_by_its_own_tensor_only() -> None:
    messages, tensor = PipelineMessages(), Tensor()
    messages.add([Message(tensor)], 7)
    assert messages.take([[Tensor()], None]) == 0
    assert messages.take([[tensor, tensor], None]) == 0
    assert messages.take([tensor]) == 0
    assert messages.take([[tensor], None]) == 7
    assert messages.take([[tensor], None]) == 0
    kept = [Tensor() for _ in range(MAX_MESSAGES + 1)]
    for one in kept:
        messages.add([Message(one)], 1)
    assert len(messages.known) <= MAX_MESSAGES
