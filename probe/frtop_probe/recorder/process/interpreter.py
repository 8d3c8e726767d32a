"""Whether this Python is one that the recorder may run in.

The hook has no locks: it relies on the GIL for each step on a dict, a deque, a counter and the
ring, and on objects that go with their last reference at once. Without the GIL neither holds,
and what would be wrong is training's memory. So builds without it are refused as a whole, also
when the GIL is on at the moment (`PYTHON_GIL=1`, or an extension that needs it): references are
counted there in another way all the same.
"""

from __future__ import annotations

import sys
import sysconfig
from typing import Final

FREE_THREADED: Final = (
    "this Python is a free-threaded build ({version}t), for which the recorder is not made: "
    "use the build with the GIL, python{version}"
)


def refusal() -> str:
    """Returns why the recorder does not run in this Python, with what to use; "" if it does."""
    if not _free_threaded():
        return ""
    return FREE_THREADED.format(version=f"{sys.version_info.major}.{sys.version_info.minor}")


def _free_threaded() -> bool:
    """Told by features, never by a version: first what runs, then what was built."""
    running = getattr(sys, "_is_gil_enabled", None)  # from 3.13 on, in every build
    if running is None:
        return False
    return not running() or bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
