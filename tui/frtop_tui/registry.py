"""Finds the features: every folder in `features/` is one, and deleting it removes the feature.

The core knows no feature by name. It imports these modules from the folders that have them:

    verbs.py     VERBS        verbs of the command line; imported at every start, so it must be fast
                 BESIDE_RUN   what `frtop run` can start beside a job
    settings.py  TABLES       tables of the configuration file, and SETTINGS in them
    notes.py     NOTES        what else is known of the culprits of a frame, by a name for programs
    screens.py   SCREENS      views, commands, keys, styles; imported to draw
    follow.py    FOLLOWERS    what to ask agents while somebody looks at a job
    schemas.py   TYPES        types of what its verbs print with --json
    events.py    PAGE         title and structs of events, for the reference of fields
    statistics_command.py
                 COUNTED      counts the feature's own files for `frtop statistics`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

FEATURES: Final = "frtop_tui.features"


def contributions(module: str, name: str) -> Iterator[Any]:
    """The value of this name in the module of each feature that has it, by feature."""
    for feature, modules in _modules().items():
        if module in modules:
            found = import_module(f"{FEATURES}.{feature}.{module}")
            if hasattr(found, name):
                yield getattr(found, name)


@cache
def _modules() -> Mapping[str, frozenset[str]]:
    """The modules of each feature, whether they are in a folder or in an archive."""
    (folder,) = import_module(FEATURES).__path__
    features = sorted(one.name for one in iter_modules([folder]) if one.ispkg)
    return {
        feature: frozenset(one.name for one in iter_modules([f"{folder}/{feature}"]))
        for feature in features
    }


def notes_on(frame: object) -> dict[str, list[str]]:
    """What features know of a frame's culprits from elsewhere, such as earlier verdicts."""
    return {
        key: lines_on(frame)
        for notes in contributions("notes", "NOTES")
        for key, lines_on in notes.items()
    }
