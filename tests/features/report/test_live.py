"""What real ranks report, by themselves and through libraries."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from frtop_probe.ring.layout import State, StatusCell
from frtop_probe.ring.marks import read_reports
from frtop_probe.ring.reader import Ring
from recorder.rank_runner import on_fake

pytestmark = pytest.mark.torch

TENSORS = """
    import frtop_probe, numpy
    from torch.distributed.device_mesh import init_device_mesh
    init()
    weight = torch.ones(1, requires_grad=True)
    opt = torch.optim.SGD([weight], lr=0.5)
    class Strange:
        def __float__(self): raise KeyboardInterrupt
    for _ in range(3):
        opt.zero_grad()
        (weight * 2).sum().backward()
        opt.step()
        frtop_probe.report(
            loss=(weight * 2).sum(), half=torch.tensor([-1.5], dtype=torch.bfloat16),
            flag=torch.tensor(True), scalar=numpy.float32(0.25),
            device=torch.ones((), device="meta"), many=torch.ones(2), strange=Strange(),
            sharded=torch.distributed.tensor.distribute_tensor(
                torch.ones(8), init_device_mesh("cpu", (8,))).sum() if _ == 0 else None,
        )
    frtop_probe.report(-5, loss=1.0)
    frtop_probe.report("no step", loss=float("inf"))
    frtop_probe.stop()
    frtop_probe.report(loss=9.0)
"""

LIBRARIES = """
    import pickle, sys, frtop_probe
    init()
    sys.path.insert(0, sys.argv[1])
    from lightning.fabric.loggers.logger import Logger
    from accelerate.accelerator import Accelerator
    from transformers.trainer import Trainer, TrainerCallback
    class Mine(Logger):
        def log_metrics(self, metrics, step=None): super().log_metrics(metrics, step)
    class Below(Mine):
        def log_metrics(self, metrics, step=None): return super().log_metrics(metrics, step)
    assert Below().log_metrics({"loss": 0.5, "sample": "a text"}, step=3) is None
    Mine().log_metrics(metrics={"loss": 0.5}, step=3)
    assert Accelerator().log({"lr": 0.1}, step=4) == ({"lr": 0.1}, 4)
    assert Accelerator().log(values={"lr": 0.2}) == ({"lr": 0.2}, None)
    trainer = Trainer(model="m")
    assert [type(one).__mro__[1] for one in trainer.callbacks] == [TrainerCallback]
    trainer.log({"grad_norm": 2.5, "note": "a text"})
    elsewhere = pickle.loads(pickle.dumps(trainer))  # as Ray does for a search
    assert [type(one) for one in elsewhere.callbacks] == [TrainerCallback]
    class Odd(Logger):
        @staticmethod
        def log_metrics(metrics, step=None): return metrics
    assert Odd().log_metrics({"loss": 1.0}) == {"loss": 1.0}
    for call in (lambda: Accelerator().log(), lambda: Accelerator().log(1, 2, 3, 4, 5)):
        try:
            call()
        except TypeError:
            pass
        else:
            raise AssertionError
"""

LOGGER = """
from abc import ABC, abstractmethod
class Logger(ABC):
    @abstractmethod
    def log_metrics(self, metrics, step=None): pass
class Before(Logger):
    def log_metrics(self, metrics, step=None): pass
"""
ACCELERATOR = """
class Accelerator:
    def log(self, values, step=None, log_kwargs=None): return values, step
"""
TRAINER = """
from types import SimpleNamespace
class TrainerCallback:
    def on_log(self, args, state, control, logs=None, **kwargs): raise AssertionError
class Trainer:
    def __init__(self, model):
        self.callbacks = []
    def add_callback(self, callback): self.callbacks.append(callback)
    def log(self, logs):
        for one in self.callbacks:
            one.on_log(None, SimpleNamespace(global_step=7), None, model=None, logs=logs)
"""


def values(ring: Ring) -> list[tuple[str, int, float]]:
    rows, _ = read_reports(ring)
    return [(ring.reports[row.name], row.step, row.value) for row in rows]


def test_a_rank_reads_only_what_needs_no_device(tmp_path: Path) -> None:
    ring = on_fake(tmp_path, TENSORS).ring
    assert values(ring) == [
        *(
            one
            for step in (1, 2, 3)
            for one in (
                ("loss", step, 2.0 - 2 * step),
                ("half", step, -1.5),
                ("flag", step, 1.0),
                ("scalar", step, 0.25),
            )
        ),
        ("loss", 0, 1.0),
        ("loss", 0, math.inf),
    ]
    assert ring.cell(StatusCell.HOOK_ERRORS) == 0
    assert ring.cell(StatusCell.STATE) == State.STOPPED
    refused = [note for note in ring.notes.values() if "frtop_probe.report does not" in note]
    assert len(refused) == 4
    assert any("device: it is a tensor on meta" in note for note in refused)


def test_what_libraries_log_is_recorded_only_where_that_was_asked_for(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    for name, text in {
        "lightning/fabric/loggers/logger.py": LOGGER,
        "accelerate/accelerator.py": ACCELERATOR,
        "transformers/trainer.py": TRAINER,
    }.items():
        path = packages / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    program = LIBRARIES.replace("sys.argv[1]", repr(str(packages)))
    asked = on_fake(tmp_path, program, FRTOP_REPORT="1")
    assert values(asked.ring) == [
        ("loss", 3, 0.5),
        ("lr", 4, 0.1),
        ("lr", 0, 0.2),
        ("grad_norm", 7, 2.5),
    ]
    other = tmp_path / "other"
    other.mkdir()
    without = on_fake(other, program.replace("[TrainerCallback]", "[]"))
    assert values(without.ring) == []
