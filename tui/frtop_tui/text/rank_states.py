"""Letters and meanings of the states of ranks: on screens and in reports."""

from __future__ import annotations

from typing import Final

from frtop_tui.job.model import RankState

LETTERS: Final[dict[RankState, str]] = {
    "moving": ".",
    "blocked": "b",
    "late": "L",
    "silent": "S",
    "stopped": "T",
    "dead": "D",
    "done": "o",
    "unreachable": "?",
    "starting": "s",
    "unknown": "-",
}
MEANINGS: Final[dict[RankState, str]] = {
    "late": "other ranks wait for it, or all ranks are held up outside of any op",
    "dead": "its process ended, and not cleanly",
    "silent": "alive, but its heartbeat has stopped: something holds the GIL",
    "stopped": "its process is stopped, by SIGSTOP or a debugger",
    "unreachable": "its host or agent cannot be reached; its last known state is shown",
    "blocked": "it waits in an op",
    "starting": "it is in no process group yet",
    "unknown": "nothing in its files shows whether it moves",
    "moving": "its op numbers advance, or nothing indicates otherwise",
    "done": "it exited cleanly",
}
"""Ordered by how likely the rank is the culprit."""
URGENCY: Final[dict[RankState, int]] = {state: n for n, state in enumerate(MEANINGS)}
