"""Tones and meanings of the states of jobs and processes."""

from __future__ import annotations

from typing import Final

from frtop_tui.job.model import Health

HEALTH_TONE: Final[dict[Health, str]] = {
    "connecting": "warn",
    "empty": "warn",
    "starting": "strong",
    "healthy": "good",
    "waiting": "warn",
    "unreachable": "warn",
    "held up": "warn",
    "slow": "warn",
    "hung": "alarm",
    "dead": "alarm",
    "diverged": "alarm",
    "undecided": "warn",
    "ended": "strong",
}

PROCESS_STATES: Final = {
    "R": "running",
    "S": "sleeping",
    "D": "uninterruptible sleep",
    "T": "stopped",
    "t": "stopped by a tracer",
    "Z": "zombie",
    "X": "gone",
    "I": "idle",
}
"""Meaning of the state letters in `/proc/PID/stat`."""
