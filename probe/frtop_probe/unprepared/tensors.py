"""Shape, dtype and device of a tensor, from its `c10::TensorImpl`; never its values.

Layout: c10/core/TensorImpl.h. After pyobj_slot_ come sizes_and_strides_ (dimension count, then
ten words of sizes and strides, or two pointers for more than five dimensions), storage_offset_,
numel_, data_type_ and device_opt_.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from math import prod
from typing import Final

from frtop_probe.proc.memory import NotReadable, ProcessMemory, to_words
from frtop_probe.unprepared.cxx import is_pointer
from frtop_probe.unprepared.model import TensorInfo

NO_TENSOR: Final = "tensor not readable: it could not be validated"

_IMPL_WORDS: Final = 26
_PYOBJ_PLACES: Final = range(5, 10)
"""Words of TensorImpl where pyobj_ may be: storage_, autograd_meta_, extra_meta_ and the
version counter come before it, and in some releases an interpreter's pointer."""
_SIZES: Final = 2  # words after pyobj_
_NUMEL: Final = 13
_DTYPE: Final = 14
_INLINE_DIMENSIONS: Final = 5
_MAX_DIMENSIONS: Final = 25
_MAX_DTYPE: Final = 60
_MAX_SIZE: Final = 1 << 48
_CPU: Final = 0

DTYPES: Final = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 8: "complex32", 9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16",
    23: "float8_e5m2", 24: "float8_e4m3fn", 27: "uint16", 28: "uint32", 29: "uint64",
}  # fmt: skip
"""c10::ScalarType, torch/headeronly/core/ScalarType.h."""
DEVICES: Final = {0: "cpu", 1: "cuda", 6: "hip", 9: "xla", 12: "xpu", 13: "mps", 14: "meta",
                  15: "hpu", 20: "privateuseone"}  # fmt: skip
"""c10::DeviceType, torch/headeronly/core/DeviceType.h."""


def device_name(number: int) -> str:
    """Returns the name of a c10::DeviceType."""
    return DEVICES.get(number, f"device {number}")


def dtype_name(number: int) -> str:
    """Returns the name of a c10::ScalarType."""
    return DTYPES.get(number, f"dtype {number}")


def tensor_of_impl(memory: ProcessMemory, impl: int) -> TensorInfo:
    """Reads a tensor: its fields may begin at several places, exactly one of which must fit.

    Raises:
        NotReadable: None fits, or more than one fits.
    """
    if not is_pointer(impl):
        raise NotReadable(NO_TENSOR, "no address")
    words = to_words(memory.read(impl, 8 * _IMPL_WORDS))
    fits = set(_fitting(memory, words))
    if len(fits) != 1:
        raise NotReadable(NO_TENSOR, f"{len(fits)} layouts fit")
    return fits.pop()


def _fitting(memory: ProcessMemory, words: Sequence[int]) -> Iterable[TensorInfo]:
    for place in _PYOBJ_PLACES:
        owner = words[place] & ~1
        if owner and not is_pointer(owner):
            continue
        try:
            yield _describe(memory, words, place)
        except NotReadable:
            continue


def _describe(memory: ProcessMemory, words: Sequence[int], place: int) -> TensorInfo:
    dimensions = words[place + 1]
    if dimensions > _MAX_DIMENSIONS:
        raise NotReadable(NO_TENSOR, "dimensions")
    if dimensions <= _INLINE_DIMENSIONS:
        sizes = tuple(words[place + _SIZES : place + _SIZES + dimensions])
    else:
        sizes = memory.words(words[place + _SIZES], dimensions)
    if any(size > _MAX_SIZE for size in sizes) or prod(sizes) != words[place + _NUMEL]:
        raise NotReadable(NO_TENSOR, "sizes")
    # data_type_ 2 bytes, then std::optional<Device>: type 1, index 1, has_value 1.
    dtype, device, index, has_device = struct.unpack_from(
        "<HbbB", struct.pack("<Q", words[place + _DTYPE])
    )
    if dtype >= _MAX_DTYPE or has_device != 1 or not 0 <= device < 64 or index < -1:
        raise NotReadable(NO_TENSOR, "dtype or device")
    name = device_name(device)
    return TensorInfo(
        shape=sizes,
        dtype=dtype_name(dtype),
        device=name if device == _CPU or index < 0 else f"{name}:{index}",
    )
