"""`frtop statistics` for a profile: ops and times by module, or torch's allocator."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Final

from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.features.profile.allocation_words import allocation_document, allocation_lines
from frtop_tui.features.profile.profiled_modules_words import profiled_document, profiled_lines
from frtop_tui.features.profile.reader import (
    is_named_profile,
    is_profile,
    read_allocations,
    read_profile,
)


def count(options: argparse.Namespace) -> int | None:
    """Prints the figures of a profile; returns the exit status, None if no profile is named."""
    if options.by == "memory":
        return _run_allocations(options)
    # Stacks are *.json too: without a profile's name or option, the content decides.
    is_one = is_named_profile if options.by == "module" else is_profile
    if profile := next((path for path in options.paths if is_one(Path(path))), None):
        _require_fitting(options, profile)
        return _run_profile(options, Path(profile))
    if options.level:
        raise UsageError(
            f"level {options.level} needs a profile",
            "`frtop profile --steps 1 --shapes -o FILE.json.gz`, then name FILE.json.gz here",
        )
    return None


def _require_fitting(options: argparse.Namespace, profile: str) -> None:
    """Raises UsageError if options ask for what a profile does not have."""
    if options.by == "line" or options.group or options.window:
        asked = "--by line" if options.by == "line" else "--group" if options.group else "--window"
        raise UsageError(
            f"{profile} is a profile, which is counted by module: leave out {asked}",
            f"`frtop statistics {shlex.quote(str(profile))}`,"
            " or `--by memory` for what torch's allocator did",
        )
    if len(options.paths) > 1:
        raise UsageError(f"{profile} is a profile, which is read alone", "name one file")


def _run_profile(options: argparse.Namespace, path: Path) -> int:
    level = 1 if options.level is None else options.level
    found = read_profile(path, options.rank or ())
    if options.json:
        print(json.dumps(profiled_document(found, level), indent=1))
    else:
        print("\n".join(profiled_lines(found, level)))
    return 0 if found.recorded else 1


def _run_allocations(options: argparse.Namespace) -> int:
    step = "`frtop profile --memory -o FILE.json.gz`, then name FILE.json.gz here"
    if len(options.paths) != 1:
        raise UsageError("what torch's allocator did is shown for one profile at a time", step)
    found = read_allocations(Path(options.paths[0]), options.rank or ())
    if not found:
        raise FrtopError(f"{options.paths[0]} was recorded without allocations", step)
    if options.json:
        print(json.dumps(allocation_document(found), indent=1))
    else:
        print("\n".join(allocation_lines(found)))
    return 0


COUNTED: Final = count
