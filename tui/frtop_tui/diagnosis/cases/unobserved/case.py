"""Unobserved waits: in transports past c10d, or behind full device queues."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule
from frtop_tui.diagnosis.cases.unobserved.detect import StandingWaits
from frtop_tui.diagnosis.cases.unobserved.words import standing_waits

UNOBSERVED: Final = Case((Kind(StandingWaits, standing_waits, (Rule("frames"),)),))
