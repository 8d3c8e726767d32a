"""Which job to look at, of all that are known."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import ChooseJob, FrameScreen
from frtop_tui.widgets.jobs import JobTable


class JobsScreen(FrameScreen):
    """Opened over another screen; `enter` leads to the job's own."""

    AUTO_FOCUS = "#jobs"
    crumb = "jobs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "back", tooltip="to where one came from", id="back"),
    ]

    def panes(self) -> ComposeResult:
        yield JobTable()

    def barred(self, action: str) -> str:
        """Elsewhere `enter` leads to ranks, which a recorded job has too."""
        return super().barred("choose_job" if action == "choose" else action)

    def draw(self, frame: Frame) -> None:
        self.query_one(JobTable).show_jobs(frame)

    def on_line_view_chosen(self) -> None:
        row = self.query_one(JobTable).chosen
        if row is not None and (row.shown or self.may("choose_job")):
            self.post_message(ChooseJob(row.job))
