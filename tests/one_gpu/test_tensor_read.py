"""The kit's look at a stuck tensor goes through the recorder's own reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.device_rank import build
from recorder.rank_runner import PROBE, code, run_python

pytestmark = pytest.mark.torch

PROGRAM = """
    import ctypes, types
    driver = ctypes.CDLL({library!r})
    import torch
    from gpu_kit.programs import hang
    here = types.SimpleNamespace(on_gpu=True, rank=0, device=torch.device("cuda", 0))
    reader, tensor = hang._reader(here), torch.full((hang.ELEMENTS,), 2.0)
    found = hang._read(reader, tensor)
    assert (found["ready"], found["size"], found["bytes"]) == (True, 1 << 22, "00000040" * 4)
    ctypes.c_int.in_dll(driver, "standin_stuck").value = 1
    assert "did not end within 1.0 s" in hang._read(reader, tensor)["error"]
"""


def test_the_tensor_is_read_or_the_reason_is_said(tmp_path: Path) -> None:
    program = PROGRAM.format(library=str(build(tmp_path)))
    path = f"{PROBE}:{PROBE.parent}"
    ended = run_python(tmp_path / "rings", "-W", "ignore", *code(program), PYTHONPATH=path)
    assert (ended.returncode, ended.stderr) == (0, "")
