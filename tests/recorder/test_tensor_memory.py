"""Which tensors can be read, and why the others cannot."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from frtop_probe.recorder.ops.operations import Operation, TensorArgument
from frtop_probe.recorder.ops.tensor_refs import tensor_getter, unpack
from frtop_probe.recorder.tensors.tensor_memory import UnreadableTensor, local_tensor, locate

pytestmark = pytest.mark.torch


SEND = Operation(
    "send", "send", -1, (TensorArgument(0, 1, output=False),), *[-1] * 8
)  # fmt: skip


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (torch.ones(4, 4)[:, 1], "not contiguous"),
        (torch.ones(1).expand(5), "not contiguous"),
        (torch.ones(3).to_sparse(), "sparse_coo"),
        (torch.ones(3, device="meta"), "in the memory of a device"),
        (torch.ones(3, dtype=torch.complex64).conj(), "computes when read"),
    ],
)
def test_an_unreadable_tensor_has_a_reason(tensor: torch.Tensor, why: str) -> None:
    (ref,) = unpack(1, SEND, tensor_getter(SEND)([[tensor]])).tensors
    with pytest.raises(UnreadableTensor, match=why):
        locate(torch, local_tensor(torch, ref))


def test_a_view_is_read_from_its_own_begin() -> None:
    """And a copy that torch has put off stays put off."""
    is_lazy: Any = getattr(torch._C, "_is_cow_tensor")  # noqa: B009 - no stub has it
    tensor = torch.arange(10)
    for view in (tensor[3:5], tensor.view(2, 5)[1], torch._lazy_clone(tensor)[4:]):
        lazy = is_lazy(view)
        memory = locate(torch, view)
        assert is_lazy(view) is lazy
        there = ctypes.string_at(memory.address, memory.size)
        assert there == view.clone().numpy().tobytes()


def test_a_dense_tensor_is_readable_in_memory_order_only() -> None:
    tensor = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert locate(torch, tensor).size == 480
    with pytest.raises(UnreadableTensor):
        locate(torch, tensor, in_order=True)
