"""`frtop history`: hosts that were culprits repeatedly, as `frtop watch` noted them."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from frtop_probe.agent.box_folder import state_folder
from frtop_tui.errors import FrtopError
from frtop_tui.features.watch.history import FILE, Culprit, CulpritHistory
from frtop_tui.features.watch.offenders import (
    DAY_S,
    Offender,
    offender_fields,
    offenders,
)
from frtop_tui.files.output_path import expanded
from frtop_tui.job.naming import listed, printable
from frtop_tui.job.units import counted, how_often, local_time

MOST_LINES = 40


def run(options: argparse.Namespace) -> int:
    """Returns 0, with or without a history."""
    path = chosen_folder(options.state) / FILE
    if options.forget:
        return _forget(path)
    found = _read(path, options.days)
    rows = offenders(found)
    if options.json:
        known = {
            "schema": "frtop-history-1",
            "days": options.days,
            "hosts": [offender_fields(one) for one in rows],
        }
        print(json.dumps(known, indent=1))
        return 0
    if not path.exists():
        print(f"no history yet: {path}; `frtop watch` notes confirmed culprits there")
        return 0
    runs = len({one.run for one in found})
    print(f"{counted(runs, 'run')} with a confirmed culprit in {options.days:g} days: {path}")
    for one in rows[:MOST_LINES]:
        for line in _lines(one):
            print(printable(line))
    if len(rows) > MOST_LINES:
        print(f"and {counted(len(rows) - MOST_LINES, 'more host')}: --json has all")
    return 0


def chosen_folder(named: str | None, option: str = "--state") -> Path:
    """The folder that `option` names, or the user's; raises `FrtopError` without such a home."""
    text = named or state_folder()
    if not text:
        raise FrtopError("there is no home for the state", f"name a folder with {option}")
    folder = expanded(text)
    if str(folder).startswith("~"):
        raise FrtopError(f"{folder}: there is no such user", f"name another folder with {option}")
    return folder.absolute()


def _read(path: Path, days: float) -> tuple[Culprit, ...]:
    history = CulpritHistory(path)
    found = history.since(time.time() - days * DAY_S)
    if history.problem:
        raise FrtopError(history.problem, "frtop history again, or --forget")
    return found


def _lines(one: Offender) -> list[str]:
    last = local_time(int(one.last_s * 1e9))
    times = how_often(one.times)
    causes = listed([f"{cause} ({count})" if count > 1 else cause for cause, count in one.causes])
    lines = [f"{one.name}  {times}, last {last}: {causes}; in {listed(one.jobs, 4)}"]
    lines += [f"  link  {link}" for link in one.links[:4]]
    return [*lines, *([f"  next  {one.advice}"] if one.advice else [])]


def _forget(path: Path) -> int:
    try:
        there = CulpritHistory(path).forget()
    except OSError as error:
        raise FrtopError(f"{path}: {error.strerror}", "remove it by hand") from error
    print(f"removed {path}" if there else f"there is no history: {path}")
    return 0
