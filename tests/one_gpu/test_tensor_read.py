"""The kit's look at a stuck tensor goes through the recorder's own reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.device_rank import build
from recorder.rank_runner import PROBE, run

pytestmark = pytest.mark.torch

PROGRAM = """
    import ctypes, sys, types, torch
    library, root = sys.argv[1:]
    driver = ctypes.CDLL(library)
    sys.path.append(root)
    from gpu_kit.programs import hang
    here = types.SimpleNamespace(on_gpu=True, rank=0, device=torch.device("cuda", 0))
    reader, tensor = hang._reader(here), torch.full((hang.ELEMENTS,), 2.0)
    found = hang._read(reader, tensor)
    assert (found["ready"], found["size"], found["bytes"]) == (True, 1 << 22, "00000040" * 4)
    ctypes.c_int.in_dll(driver, "standin_stuck").value = 1
    assert "did not end within 1.0 s" in hang._read(reader, tensor)["error"]
"""


def test_the_tensor_is_read_or_the_reason_is_said(tmp_path: Path) -> None:
    (ended,) = run(PROGRAM, tmp_path / "rings", str(build(tmp_path)), str(PROBE.parent))
    assert (ended.code, ended.err) == (0, "")
