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

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).with_name("features")


def contributions(module: str, name: str) -> Iterator[Any]:
    """The value of this name in the module of each feature that has it, by feature."""
    for path in sorted(FOLDER.glob(f"*/{module}.py")):
        found = importlib.import_module(f"frtop_tui.features.{path.parent.name}.{module}")
        if hasattr(found, name):
            yield getattr(found, name)


def notes_on(frame: object) -> dict[str, list[str]]:
    """What features know of a frame's culprits from elsewhere, such as earlier verdicts."""
    return {
        key: lines_on(frame)
        for notes in contributions("notes", "NOTES")
        for key, lines_on in notes.items()
    }
