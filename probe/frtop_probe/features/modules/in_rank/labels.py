"""Hears of the labels that torch gives to parts of a program for profilers (`record_function`).

Dynamo knows such labels by their class and leaves them out of graphs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from frtop_probe.recorder.ops.hook import hide_from_dynamo

Hook = Callable[[Any], Any]
Wanted = Callable[[str], bool]


def wrap_labels(torch: Any, wanted: Wanted, begins: Hook, ends: Hook) -> bool:
    """Wraps the start and end of labels; returns whether this torch has them.

    Args:
        torch: the package.
        wanted: takes a label's text, at each one: keep it cheap.
        begins: takes the label object.
        ends: likewise.
    """
    kind = getattr(torch.autograd.profiler, "record_function", None)
    before, after = (getattr(kind, "__dict__", {}).get(n) for n in ("__enter__", "__exit__"))
    if before is None or after is None:
        return False

    @functools.wraps(before)
    def __enter__(self: Any) -> Any:  # noqa: N807 - replaces the method of this name
        if wanted(getattr(self, "name", "")):
            begins(self)
        return before(self)

    @functools.wraps(after)
    def __exit__(self: Any, *error: Any) -> Any:  # noqa: N807
        try:
            return after(self, *error)
        finally:
            if wanted(getattr(self, "name", "")):
                ends(self)

    for wrapper in (__enter__, __exit__):
        hide_from_dynamo(torch, wrapper)
        setattr(kind, wrapper.__name__, wrapper)
    return True
