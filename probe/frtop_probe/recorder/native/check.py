"""Compares what the loaded kernels compute with Python, before they record anything.

They were compiled somewhere, by some compiler, against structures of CPython that are not public. A
difference would be a wrong ring, or worse, in every rank.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, Final
from zlib import crc32

from frtop_probe.ring import layout
from frtop_probe.ring.layout import Flag, MarkKind, StatusCell

DEPTH: Final = 64


def difference(library: Any) -> str:
    """Returns what the kernels in a C library see differently, "" if nothing."""
    if _numbers(library) != _expected():
        return "another layout of the ring"
    for size in (0, 1, 7, 8, 9, 64, 100):
        data = bytes(range(size))
        if ctypes.c_uint32(library.frtop_check_sum(data, ctypes.c_size_t(size))).value != crc32(
            data
        ):
            return "another CRC-32"
    slot = ctypes.create_string_buffer(layout.SLOT_SIZE)
    library.frtop_check_slot(slot)
    body = layout.SLOT_BODY.pack(*range(1, 14))
    if slot.raw != layout.SLOT.pack(body, crc32(body), *range(14, 19)):
        return "another layout of slots"
    (generated,) = _in_generator(library)
    for codes, lines, frames in (_stacks(library), generated):
        if (
            not frames
            or codes != [id(code) for code, _ in frames]
            or lines != [line for _, line in frames]
        ):
            return "other frames of Python"
    return ""


def _numbers(library: Any) -> list[int]:
    found = (ctypes.c_uint64 * 32)()
    count = library.frtop_check_numbers(found, ctypes.c_size_t(32))
    return found[:count]


def _expected() -> list[int]:
    cells = (
        StatusCell.HEAD, StatusCell.STEP, StatusCell.STEP_NS, StatusCell.PENDING_LOST,
        StatusCell.MARKS, StatusCell.LONGER_FROM,
        MarkKind.STEP, MarkKind.OPTIMIZER, MarkKind.REPORT,
    )  # fmt: skip
    flags = (Flag.SYNC, Flag.P2P, Flag.UNTRACKED, Flag.LATE, Flag.DEVICE, Flag.ELSEWHERE)
    sizes = (layout.GROUP_ROW.size, layout.CHUNK, layout.SIZES.size)
    others = (layout.MESSAGES, len(layout.REDUCE_OPS) - 1)
    offsets = (layout.SLOT_FLAGS, layout.SLOT_DONE, layout.SLOT_WAIT)
    return [int(one) for one in (layout.CELLS_OFFSET, *cells, *sizes, *others, *flags, *offsets)]


Stacks = tuple[list[int | None], list[int | None], list[tuple[CodeType, int]]]
"""Addresses of code objects and lines as the kernels see them, and both as Python sees them."""


def _stacks(library: Any) -> Stacks:
    codes, instructions = (ctypes.c_void_p * DEPTH)(), (ctypes.c_int * DEPTH)()
    frames: list[tuple[CodeType, int]] = []
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    count, line = library.frtop_check_stack(codes, instructions, DEPTH), sys._getframe().f_lineno  # noqa: SLF001
    while frame is not None and len(frames) < count:
        frames.append((frame.f_code, frame.f_lineno if frames else line))
        frame = frame.f_back
    pairs = zip(frames, instructions, strict=False)
    return list(codes[:count]), [_line(code, at) for (code, _), at in pairs], frames


def _in_generator(library: Any) -> Iterator[Stacks]:
    yield _stacks(library)


def _line(code: CodeType, instruction: int) -> int | None:
    return next((line for begin, end, line in code.co_lines() if begin <= instruction < end), None)
