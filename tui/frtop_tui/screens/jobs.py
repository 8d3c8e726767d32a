"""All known jobs; `enter` shows another one."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import ChooseJob
from frtop_tui.widgets.jobs import JobTable


class JobsScreen(FrameScreen):
    """Opened over another screen; `enter` leads to the overview of the chosen job."""

    AUTO_FOCUS = "#jobs"
    crumb = "jobs"
    BINDINGS: ClassVar[list[BindingType]] = [BACK]

    def panes(self) -> ComposeResult:
        yield JobTable()

    def why_unavailable(self, action: str) -> str:
        """Here `enter` shows another job, and a recorded frame has only one."""
        return super().why_unavailable("choose_job" if action == "choose" else action)

    def draw(self, frame: Frame) -> None:
        self.query_one(JobTable).show_jobs(frame)

    def on_line_view_chosen(self) -> None:
        row = self.query_one(JobTable).chosen
        if row is not None and (row.shown or self.check_available("choose_job")):
            self.post_message(ChooseJob(row.job))
