"""References to the tensors of an op."""

from __future__ import annotations

import pytest
import torch

from frtop_probe.recorder.ops.operations import Operation, TensorArgument
from frtop_probe.recorder.ops.tensor_refs import tensor_getter, unpack, weak_refs

pytestmark = pytest.mark.torch


SEND = Operation(
    "send", "send", -1, (TensorArgument(0, 1, output=False),), *[-1] * 8
)  # fmt: skip


def test_weak_refs_do_not_keep_a_tensor_alive() -> None:
    tensor = torch.ones(3)
    picked = weak_refs(tensor_getter(SEND)([[tensor]]))
    (ref,) = unpack(1, SEND, picked).tensors
    assert ref.tensor() is tensor
    del tensor
    assert ref.tensor() is None
