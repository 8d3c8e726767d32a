"""What the recorder says of transports past c10d."""

from __future__ import annotations

import sys
import time
import types
from pathlib import Path

import pytest

from frtop_probe.recorder.ops import transports
from frtop_probe.recorder.ops.transports import TransportWatch, loaded
from recorder.rank_runner import run


def test_nothing_is_imported_and_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "torch.distributed._symmetric_memory", Odd("odd"))
    monkeypatch.setitem(sys.modules, "transformer_engine.pytorch.module.base", None)
    assert loaded() == ()
    assert set(sys.modules) - before <= {
        "torch.distributed._symmetric_memory", "transformer_engine.pytorch.module.base",
    }  # fmt: skip


def test_what_engines_import_on_cpus_too_is_a_sign_once_cuda_is_initialized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pynccl = "vllm.distributed.device_communicators.pynccl"
    cuda = types.ModuleType("torch.cuda")
    monkeypatch.setitem(sys.modules, pynccl, types.ModuleType(pynccl))
    monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    assert loaded() == ()
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    for initialized in (False, True):
        monkeypatch.setattr(cuda, "_initialized", initialized, raising=False)
        assert loaded() == ((("pynccl", f"module {pynccl} is imported"),) if initialized else ())


def test_only_what_changed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = TransportWatch()
    assert watch.changed() is None
    monkeypatch.setitem(sys.modules, "deep_ep", types.ModuleType("deep_ep"))
    assert watch.changed() is None  # not yet again
    now[0] += transports.AGAIN_S + 0.1
    assert watch.changed() == (("DeepEP", "module deep_ep is imported"),)
    now[0] += transports.AGAIN_S + 0.1
    assert watch.changed() is None
    monkeypatch.delitem(sys.modules, "deep_ep")
    now[0] += transports.AGAIN_S + 0.1
    assert watch.changed() == ()


@pytest.mark.torch
def test_a_rank_says_so_in_its_ring(tmp_path: Path) -> None:
    program = """
        import sys, time, types
        import torch, torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore
        class CUDAGraph:  # the real one needs a device
            def capture_begin(self, pool=None, capture_error_mode="global"):
                self.mode = capture_error_mode
            def capture_end(self):
                return self.mode
        torch.cuda.graphs.CUDAGraph = CUDAGraph
        dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
        sys.modules["deep_ep"] = types.ModuleType("deep_ep")
        tp = dist.new_group([0, 1], group_desc="tp:0")
        graph = torch.cuda.graphs.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        dist.all_reduce(torch.ones(2), group=tp)
        assert graph.capture_end() == "thread_local"
        from frtop_probe.recorder.process.lifecycle import lifecycle
        watch, end = lifecycle.recorder._transports, time.monotonic() + 30
        while len(watch._known) < 2 and time.monotonic() < end:
            time.sleep(0.05)
    """
    (rank,) = run(program, tmp_path / "frtop")
    assert rank.code == 0, rank.err
    ring = rank.ring
    ring.refresh()
    assert ring.transports == (
        ("DeepEP", "module deep_ep is imported"),
        ("CUDA graph replays", "ops of group tp:0 were captured"),
    )
    ring.close()
