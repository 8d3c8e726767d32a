"""The base of screens with statistics of a window of time, which a key changes."""

from __future__ import annotations

from typing import Final

from frtop_tui.screens.base import FrameScreen
from frtop_tui.text.statistics_words import LONGEST_S, last_issued_ns

SHORTEST_S: Final = 10.0
WINDOWS: Final = (60.0, SHORTEST_S, 0.0)
"""Seconds, in the order of the key; 0 is as far as rings reach."""


class WindowedScreen(FrameScreen):
    """Asks for statistics while it is open; in a file, they have the window of the file."""

    def __init__(self, marked: set[int], window_s: float | None = None) -> None:
        super().__init__(marked)
        self._window_s = window_s

    @property
    def window_s(self) -> float:
        """Seconds; 0 is as far as rings reach.

        Unless the user chose one, it holds ops, and none of before a job became slow.
        """
        if self._window_s is not None:
            return self._window_s
        seconds = self.preferences.window_s
        if self.frame is None or not seconds:
            return seconds
        now_ns, last_ns = self.frame.now_ns, last_issued_ns(self.frame)
        if last_ns and now_ns - last_ns > seconds * 1e9:
            return 0.0
        if self.frame.health == "slow" and now_ns - self.frame.since_ns < seconds * 1e9:
            return min(seconds, SHORTEST_S)
        return seconds

    @property
    def wanted_window(self) -> float | None:
        return self.window_s or LONGEST_S

    @property
    def window_place(self) -> int:
        """The index of the window in `WINDOWS`; -1 for one of the user's own."""
        return WINDOWS.index(self.window_s) if self.window_s in WINDOWS else -1

    def why_unavailable(self, action: str) -> str:
        if action == "window" and self.frame is not None and self.frame.recorded is not None:
            return "The window is the one in the file."
        return super().why_unavailable(action)

    def action_window(self) -> None:
        if self.check_available("window"):
            self._window_s = WINDOWS[(self.window_place + 1) % len(WINDOWS)]
            self.draw_all()
