"""Letters, meanings and tones of the states of ranks, jobs and processes."""

from __future__ import annotations

from typing import Final

from frtop_tui.job.model import Health, RankState

LETTERS: Final[dict[RankState, str]] = {
    "moving": ".",
    "blocked": "b",
    "late": "L",
    "silent": "S",
    "stopped": "T",
    "dead": "D",
    "done": "o",
    "unheard": "?",
    "starting": "s",
}
MEANINGS: Final[dict[RankState, str]] = {
    "late": "other ranks wait for it, or all ranks are held up outside of any op",
    "dead": "its process ended, and not cleanly",
    "silent": "alive, but its beat has stopped: something holds the GIL",
    "stopped": "its process is stopped, by SIGSTOP or a debugger",
    "unheard": "its host or agent cannot be reached; its last known state is shown",
    "blocked": "it waits in an op",
    "starting": "it is in no process group yet",
    "moving": "its op numbers advance, or nothing indicates otherwise",
    "done": "it exited cleanly",
}
"""Ordered by how likely the rank is the culprit."""
URGENCY: Final[dict[RankState, int]] = {state: n for n, state in enumerate(MEANINGS)}

HEALTH_TONE: Final[dict[Health, str]] = {
    "connecting": "warn",
    "empty": "warn",
    "starting": "strong",
    "healthy": "good",
    "waiting": "warn",
    "unheard": "warn",
    "held up": "warn",
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
