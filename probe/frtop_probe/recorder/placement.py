"""Where the bytes of a tensor lie, if they lie where they can be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from frtop_probe.recorder.carried import Held

GONE: Final = "the op completed, or its tensor was dropped or resized, while it was read"
FREED: Final = "the program has freed its memory for now (FSDP does so between uses)"
FAR: Final = (
    "in the memory of a device, which is not read: the copy would queue behind what hangs "
    "there; compare shapes and stacks instead"
)


class Unread(Exception):
    """Why a tensor's bytes cannot be had, as a sentence."""


@dataclass(frozen=True, slots=True)
class Place:
    """One stretch of this process's memory."""

    address: int
    size: int


def own(torch: Any, held: Held) -> Any:
    """The tensor that has the memory: of a distributed one, its local part.

    Raises:
        Unread: it is gone.
    """
    tensor = held.tensor()
    for name in ("_local_tensor", "elem"):
        if tensor is not None and _strange(torch, tensor):
            tensor = getattr(tensor, name, tensor)
    if tensor is None:
        raise Unread(GONE)
    return tensor


def place(torch: Any, tensor: Any, *, in_order: bool = False) -> Place:
    """Where the bytes lie.

    Raises:
        Unread: they cannot be read, or not as one stretch (with `in_order`: as one in the
            order of the tensor's elements).
    """
    if _strange(torch, tensor):
        raise Unread(f"a {type(tensor).__name__}, whose memory only its own class knows")
    if tensor.device.type != "cpu":
        # The seam for a reader with a stream, a pinned buffer and a deadline of its own.
        raise Unread(FAR)
    if tensor.layout != torch.strided or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise Unread(f"a {kind} tensor: only its shape is told")
    if tensor.is_conj() or tensor.is_neg():
        raise Unread("a view that is calculated on reading: only its shape is told")
    width = int(tensor.dtype.itemsize)
    size = int(tensor.numel()) * width
    if not size:
        return Place(0, 0)
    if not (tensor.is_contiguous() or (not in_order and _dense(tensor))):
        raise Unread("its values do not lie one after the other: only its shape is told")
    if int(tensor.storage_offset()) * width + size > int(tensor.untyped_storage().nbytes()):
        raise Unread(FREED)
    # Not data_ptr() if it can be helped: of a lazily copied tensor that makes the copy.
    address = getattr(torch._C, "_data_address", None)  # noqa: SLF001
    return Place(int(address(tensor) if address else tensor.data_ptr()), size)


def _strange(torch: Any, tensor: Any) -> bool:
    """Whether a class of its own stands between the tensor and its memory."""
    plain = torch.Tensor.__torch_dispatch__
    return getattr(type(tensor), "__torch_dispatch__", plain) is not plain


def _dense(tensor: Any) -> bool:
    """Whether the elements fill one stretch of memory, in whatever order."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length == 1:
            continue
        if stride != expected:
            return False
        expected *= length
    return True
