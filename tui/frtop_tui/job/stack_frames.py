"""How stack frames are written, which of them are shown, and which is the user's own code.

Verdicts and screens use the same rules, so both name the same line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from frtop_probe import wire

_INSTALLED: Final = re.compile(r".*/(?:site|dist)-packages/")
_STDLIB: Final = re.compile(r".*/lib/python3[^/]*/")
_PACKAGES: Final = re.compile(
    r"torch/|.*/torch/(?:_|nn/|distributed/|autograd/|utils/|optim/)"
    r"|(?:.*/)?(?:frtop_probe|_distutils_hack)/"
)
"""Packages recognised by their contents, as they may run from source: torch, frtop itself."""
_WITHOUT_FILE: Final = re.compile(r"<(?:stdin|ipython-input-[^>]*|dynamic-code)>")
"""What a person typed, or a function that cloudpickle sent by value, as in Ray and RPC."""
_AT_DEVICES: Final = re.compile(r"(?:^|/)torch/(?:cuda|accelerator|xpu|mps|mtia|npu)/")
_OWN: Final = re.compile(r"(?:.*/)?frtop_probe/")
_RECORDER: Final = re.compile(r"(?:.*/)?frtop_probe/(?:recorder|features)/(?:\w+/)*(\w+)\.py$")
_WRAPPERS: Final = frozenset({
    ("exceptions", "excepthook"), ("exceptions", "threading_excepthook"), ("fetches", "__next__"),
    ("graph_captures", "begin"), ("graph_captures", "end"), ("group_calls", "register"),
    ("group_calls", "wrapper"), ("guard", "wrapper"), ("kernel", "kernel"),
    ("import_hook", "exec_module"), ("phases", "__enter__"), ("phases", "__exit__"),
    ("hooks", "update"), ("module_calls", "__call__"), ("pipeline_messages", "wrapper"),
    ("phases", "_engine_run_backward"), ("phases", "__call__"),
    ("waits", "on_device"), ("waits", "wait"),
})  # fmt: skip
"""By module: the recorder's functions that replace torch's or Python's and call the originals."""


def is_user_code(frame: wire.TraceFrame) -> bool:
    """Whether a frame is outside torch, the standard library and installed packages."""
    return not frame.native and _is_user_file(frame.file, frame.module)


def is_user_line(site: wire.Site | None) -> bool:
    """Whether a call site is outside torch, the standard library and installed packages."""
    return site is not None and _is_user_file(site.file, "")


# The stacks of a job show few functions, again and again: each is searched once.
@lru_cache(maxsize=4096)
def _is_user_file(path: str, module: str) -> bool:
    return not (
        not path
        or (path.startswith("<") and not _WITHOUT_FILE.fullmatch(path))
        or _PACKAGES.match(path)
        or _INSTALLED.match(path)
        or _STDLIB.match(path)
        or ("/" not in path and module.partition(".")[0] in ("torch", "threading"))
    )


def is_wrapper(frame: wire.TraceFrame) -> bool:
    """Whether a frame is the recorder's wrapper around what the program called."""
    return not frame.native and wraps(frame.file, frame.function)


@lru_cache(maxsize=4096)
def wraps(file: str, function: str) -> bool:
    """The same for a frame of which only function and file are known."""
    found = _RECORDER.match(file)
    # Newer Python versions report qualified names.
    return found is not None and (found[1], function.rpartition(".")[2]) in _WRAPPERS


def is_own(file: str) -> bool:
    """Whether a file belongs to frtop's part inside the rank."""
    return _OWN.match(file) is not None


def is_standard_library(file: str) -> bool:
    return _STDLIB.match(file) is not None and _INSTALLED.match(file) is None


def shown_frames(frames: Sequence[wire.TraceFrame]) -> Sequence[wire.TraceFrame]:
    """The frames of a stack without frtop's wrappers, for people to read.

    Other frames of the recorder stay: a rank that hangs there hangs because of frtop. If there are
    only wrappers, C++ has called one, and they stay, too.
    """
    if not any(map(is_wrapper, frames)):
        return frames
    return [frame for frame in frames if not is_wrapper(frame)] or frames


def user_frame_index(frames: Sequence[wire.TraceFrame]) -> int | None:
    return next((index for index, frame in enumerate(frames) if is_user_code(frame)), None)


def user_frame(frames: Sequence[wire.TraceFrame]) -> wire.TraceFrame:
    """The innermost frame of user code, else the innermost informative one.

    That is a frame of a package other than torch, else one of torch outside its device handling,
    which all code passes through, else any. `frames` is not empty.
    """
    index = user_frame_index(frames)
    if index is not None:
        return frames[index]
    shown = shown_frames(frames)
    package = next(filter(_is_of_a_package, shown), None)
    outside = [one for one in shown if not _AT_DEVICES.search(one.file)] or shown
    return package or next((one for one in outside if _INSTALLED.match(one.file)), outside[0])


def _is_of_a_package(frame: wire.TraceFrame) -> bool:
    installed = _INSTALLED.match(frame.file)
    return installed is not None and not _PACKAGES.match(frame.file[installed.end() :])


def short_file(path: str) -> str:
    """A path without its installation folder: `torch/utils/data/dataloader.py`, `train.py`."""
    for prefix in (_INSTALLED, _STDLIB):
        found = prefix.match(path)
        if found:
            return path[found.end() :]
    return path.rpartition("/")[2] or path


def basename(frame: wire.TraceFrame) -> str:
    """`dataloader.py:1444`: for a narrow column beside the function's name."""
    return frame_line(frame).rpartition("/")[2]


def frame_line(frame: wire.TraceFrame) -> str:
    """`train.py:214`."""
    return f"{short_file(frame.file)}:{frame.line}" if frame.line else short_file(frame.file)


def site_line(site: wire.Site | None) -> str:
    """`train.py:214`, or "" if the call site is unknown."""
    if site is None or not site.line:
        return short_file(site.file) if site is not None else ""
    return f"{short_file(site.file)}:{site.line}"


def site_name(site: wire.Site | None) -> str:
    """The same without folders, for little room: `train.py:214`."""
    return site_line(site).rpartition("/")[2]
