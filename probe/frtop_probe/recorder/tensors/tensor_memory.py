"""Locates the bytes of a tensor in the memory of the host or of an NVIDIA GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from frtop_probe.recorder.ops.tensor_refs import TensorRef

GONE: Final = "the op completed, or its tensor was dropped or resized, during the read"
FREED: Final = "the program has freed its memory for now (FSDP does so between uses)"
OTHER_DEVICE: Final = (
    "in the memory of a device ({}): frtop reads only NVIDIA's; compare shapes and stacks instead"
)


class UnreadableTensor(Exception):
    """A tensor's bytes cannot be read; the text is the reason, as a sentence."""


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """One contiguous range of this process's memory, or of an NVIDIA GPU's, in bytes."""

    address: int
    size: int
    device: int | None = None


def local_tensor(torch: Any, ref: TensorRef) -> Any:
    """Returns the tensor with the memory: for a distributed tensor, its local part.

    Raises:
        UnreadableTensor: the tensor is gone.
    """
    tensor = ref.tensor()
    for name in ("_local_tensor", "elem"):
        if tensor is not None and _is_wrapper(torch, tensor):
            tensor = getattr(tensor, name, tensor)
    if tensor is None:
        raise UnreadableTensor(GONE)
    return tensor


def locate(torch: Any, tensor: Any, *, in_order: bool = False) -> MemoryRange:
    """Returns where the tensor's bytes are.

    Args:
        torch: the torch module.
        tensor: a tensor without a wrapper.
        in_order: whether the bytes must be in the order of the tensor's elements.

    Raises:
        UnreadableTensor: the bytes cannot be read, or are not one range (in order).
    """
    if _is_wrapper(torch, tensor):
        raise UnreadableTensor(f"a {type(tensor).__name__}, whose memory only its own class knows")
    device = None
    if tensor.device.type != "cpu":
        if not is_nvidia(torch, tensor):
            rocm = tensor.device.type == "cuda"  # torch for ROCm also calls it that
            raise UnreadableTensor(OTHER_DEVICE.format("ROCm" if rocm else tensor.device.type))
        device = int(tensor.device.index or 0)
    if tensor.layout != torch.strided or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise UnreadableTensor(f"a {kind} tensor: only its shape is known")
    if tensor.is_conj() or tensor.is_neg():
        raise UnreadableTensor("a view that torch computes when read: only its shape is known")
    width = int(tensor.dtype.itemsize)
    size = int(tensor.numel()) * width
    if not size:
        return MemoryRange(0, 0)
    if not (tensor.is_contiguous() or (not in_order and _is_dense(tensor))):
        raise UnreadableTensor("its values are not contiguous: only its shape is known")
    if int(tensor.storage_offset()) * width + size > int(tensor.untyped_storage().nbytes()):
        raise UnreadableTensor(FREED)
    return MemoryRange(_address(torch, tensor, width), size, device)


def _address(torch: Any, tensor: Any, width: int) -> int:
    """Returns where a tensor begins. `data_ptr` would materialize a lazily copied tensor."""
    if hasattr(tensor, "const_data_ptr"):
        return int(tensor.const_data_ptr())
    of_storage = getattr(torch._C, "_data_address", None)  # noqa: SLF001
    if of_storage is None:
        return int(tensor.data_ptr())
    return int(of_storage(tensor)) + int(tensor.storage_offset()) * width


def is_nvidia(torch: Any, tensor: Any) -> bool:
    return tensor.device.type == "cuda" and getattr(torch.version, "hip", None) is None


def _is_wrapper(torch: Any, tensor: Any) -> bool:
    """Returns whether a subclass dispatches ops itself, so its memory may be elsewhere."""
    plain = torch.Tensor.__torch_dispatch__
    return getattr(type(tensor), "__torch_dispatch__", plain) is not plain


def _is_dense(tensor: Any) -> bool:
    """Returns whether the elements fill one range of memory, in any order."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length == 1:
            continue
        if stride != expected:
            return False
        expected *= length
    return True
