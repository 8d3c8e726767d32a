"""Remarks from the watcher's history on the verdict of a live job."""

from __future__ import annotations

import time
from typing import Final

from frtop_probe.agent.box_folder import state_folder
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.watch.history import FILE, CulpritHistory
from frtop_tui.features.watch.history_command import chosen_folder
from frtop_tui.features.watch.offenders import DAY_S, DAYS, said_before


def former_culprits(frame: Frame) -> list[str]:
    """What the history in its usual place says about a live frame's culprits."""
    if frame.recorded is not None or not frame.verdicts or not state_folder():
        return []
    found = CulpritHistory(chosen_folder(None) / FILE).since(time.time() - DAYS * DAY_S)
    lines = dict.fromkeys(line for one in frame.verdicts for line in said_before(found, frame, one))
    return [f"{line}: `frtop history`" for line in lines]


NOTES: Final = {"before": former_culprits}
