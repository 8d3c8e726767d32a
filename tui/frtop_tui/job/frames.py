"""How a stack's frames read, and which of them is the user's own line.

One rule for verdicts and screens: both point at the same line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from frtop_probe import wire

_INSTALLED: Final = re.compile(r".*/(?:site|dist)-packages/")
_STDLIB: Final = re.compile(r".*/lib/python3[^/]*/")
_PACKAGES: Final = re.compile(
    r"torch/|.*/torch/(?:_|nn/|distributed/|autograd/|utils/|optim/)"
    r"|(?:.*/)?(?:frtop_probe|_distutils_hack)/"
)
"""Known by what is in them, as they need not be installed: torch from source, ourselves."""


def is_yours(frame: wire.TraceFrame) -> bool:
    """Outside torch, the standard library and whatever was installed."""
    path = frame.file
    return not (
        not path
        or path.startswith("<")
        or _PACKAGES.match(path)
        or _INSTALLED.match(path)
        or _STDLIB.match(path)
        or ("/" not in path and frame.module.partition(".")[0] in ("torch", "threading"))
    )


def yours(frames: Sequence[wire.TraceFrame]) -> int | None:
    """Index of the innermost frame that is the user's, None when there is none."""
    return next((index for index, frame in enumerate(frames) if is_yours(frame)), None)


def own_frame(frames: Sequence[wire.TraceFrame]) -> wire.TraceFrame:
    """The innermost frame that is the user's, else the innermost one. `frames` has one."""
    index = yours(frames)
    return frames[0 if index is None else index]


def short_file(path: str) -> str:
    """`torch/utils/data/dataloader.py`, `queue.py`, `train.py`: enough to find it."""
    for prefix in (_INSTALLED, _STDLIB):
        found = prefix.match(path)
        if found:
            return path[found.end() :]
    return path.rpartition("/")[2] or path


def basename(frame: wire.TraceFrame) -> str:
    """`dataloader.py:1444`: for where there is little room and the function is known."""
    return frame_line(frame).rpartition("/")[2]


def frame_line(frame: wire.TraceFrame) -> str:
    """`train.py:214`."""
    return f"{short_file(frame.file)}:{frame.line}" if frame.line else short_file(frame.file)


def site_line(site: wire.Site | None) -> str:
    """`train.py:214`, "" when nobody knows who issued it."""
    if site is None or not site.line:
        return short_file(site.file) if site is not None else ""
    return f"{short_file(site.file)}:{site.line}"
