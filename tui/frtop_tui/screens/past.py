"""Shows earlier frames: freezes the screen, and steps through what was received."""

from __future__ import annotations

from textual.app import App

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.units import duration
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.received_frames import ReceivedFrames


class PastApp(App[None], inherit_bindings=False):
    """An application that may show another frame than the newest."""

    def __init__(self) -> None:
        super().__init__()
        self.received = ReceivedFrames()
        self._stepped = False
        """Whether the user stepped to the shown frame; a pause still asks agents."""

    def tick(self) -> None:
        """Draws the visible screen."""
        raise NotImplementedError

    def shown(self, newest: Frame) -> tuple[Frame, str, str]:
        """The frame to draw, words for the headline, and how far back the user has stepped."""
        frame = self.received.shown
        if frame is None:
            return newest, "", ""
        age = duration(self.received.age_s())
        if not self._stepped:
            return frame, f"PAUSED, {age} behind: Z resumes", ""
        number, count = self.received.position()
        return frame, f"{age} AGO, {number} of {count}: ] or Z", age

    @property
    def in_past(self) -> bool:
        """Whether the frame on the screen is an earlier one, for which nothing is asked."""
        return self.received.shown is not None and self._stepped

    def action_past(self, by: int) -> None:
        """Steps to the frame before or after the shown one; after the last one, to the live one."""
        screen = self.screen
        if not isinstance(screen, FrameScreen) or not screen.check_available("past"):
            return
        received = self.received
        if by < 0 and not received.back():
            what = "the oldest one kept" if len(received) > 1 else "the only one so far"
            self.notify(f"Nothing earlier: this frame is {what}.", timeout=4)
        elif by > 0 and not received.forward():
            self.notify("Nothing later: this is the live frame.", timeout=4)
        self._stepped = received.shown is not None and (self._stepped or by < 0)
        self.tick()

    def action_pause(self) -> None:
        """Freezes the screen; once more resumes with the newest frame."""
        screen = self.screen
        if isinstance(screen, FrameScreen) and not screen.check_available("pause"):
            return
        self._stepped = False
        received = self.received
        received.shown = received.newest if received.shown is None else None
        self.tick()

    def action_live(self) -> None:
        """Shows the newest frame again."""
        self._stepped, self.received.shown = False, None
        self.tick()
