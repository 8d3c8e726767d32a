"""Finds features by their folders: the core knows none of them by name.

A folder in `features` may have `messages` (requests and answers), `in_rank` (handlers inside a
rank) and `at_host` (handlers in an agent). Without the folder there is no such feature.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module, util
from types import ModuleType
from typing import Final

FEATURES: Final = "frtop_probe.features"


def names() -> tuple[str, ...]:
    """The features that exist."""
    try:
        path = import_module(FEATURES).__path__
    except ModuleNotFoundError:  # an archive without features
        return ()
    return tuple(sorted(one.name for one in pkgutil.iter_modules(path) if one.ispkg))


def modules(part: str) -> Iterator[ModuleType]:
    """The modules of this name in all features that have one."""
    for name in names():
        module = f"{FEATURES}.{name}.{part}"
        if util.find_spec(module) is not None:
            yield import_module(module)
