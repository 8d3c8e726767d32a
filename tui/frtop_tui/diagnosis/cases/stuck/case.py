"""Ops that all members have, or may have, entered and that do not finish; see `wait_ends`."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule
from frtop_tui.diagnosis.cases.stuck.detect import InDoubt, LaggingDevices, Stuck, Unobserved
from frtop_tui.diagnosis.cases.stuck.words import in_doubt, lagging_devices, stuck

STUCK: Final = Case(
    (
        Kind(LaggingDevices, lagging_devices, (Rule("snapshots"),)),
        Kind(Stuck, stuck, (Rule("frames"),)),
        Kind(InDoubt, in_doubt, (Rule("frames"),)),
        Kind(Unobserved, in_doubt, (Rule("frames"),)),
    )
)
