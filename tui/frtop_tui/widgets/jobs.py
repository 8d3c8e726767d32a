"""All known jobs, one per line."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.job_activity import activity_text
from frtop_tui.job.job_list import ListedJob, listed_jobs
from frtop_tui.job.naming import job_address, job_key
from frtop_tui.job.units import duration
from frtop_tui.job.unprepared import recorder_text
from frtop_tui.widgets.spans import Span
from frtop_tui.widgets.table import Column, LineTable


def job_rows(frame: Frame) -> list[ListedJob]:
    """The job on the screen first, then the live ones, then the others."""
    return sorted(listed_jobs(frame), key=lambda row: (not row.shown, not row.lives))


def _title(row: ListedJob) -> Span:
    return (f"{'>' if row.shown else ' '} {row.name}", "strong" if row.shown else "")


def _last_op(row: ListedJob) -> Span:
    words = activity_text(row.activity) if row.lives else ""
    short = words.removeprefix("last op ").replace("at least ", ">= ")
    return (short, "warn" if words.startswith("waits") else "dim")


def _recorder(row: ListedJob) -> Span:
    unprepared = row.activity.unprepared
    return (recorder_text(row.activity.ranks, unprepared), "warn" if unprepared else "dim")


def _state(row: ListedJob) -> Span:
    word = "live" if row.lives else "ended"
    return (f"{word}, shown" if row.shown else word, "good" if row.lives else "dim")


def _address(row: ListedJob) -> str:
    return job_address(row.job)


COLUMNS: Final[tuple[Column[ListedJob], ...]] = (
    Column("  job", 0, _title, lambda r: r.name),
    Column("state", 12, _state, lambda r: r.lives),
    Column("ranks", 5, lambda r: (str(r.job.world_size or ""), ""), lambda r: r.job.world_size,
           right=True),
    Column("age", 6, lambda r: (duration(r.activity.age_s) if r.activity.age_s else "", ""),
           lambda r: r.activity.age_s, right=True),
    Column("recorder", 8, _recorder, lambda r: _recorder(r)[0], needs=100),
    Column("last op", 12, _last_op, lambda r: r.activity.quiet_s or 0.0),
    Column("run id", 20, lambda r: (r.job.run_id, "dim"), lambda r: r.job.run_id, needs=110),
    Column("address", 16, lambda r: (_address(r), "dim"), _address, wide=24),
    Column("nonce", 10, lambda r: (r.job.nonce, "dim"), lambda r: r.job.nonce, needs=130),
)  # fmt: skip


class JobTable(LineTable[ListedJob]):
    """The cursor stays on its job when rows move."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "show", tooltip="show this job", id="job.open"),
    ]

    def __init__(self) -> None:
        empty = "no job yet; `frtop run -- torchrun ...` starts one"
        super().__init__(COLUMNS, empty, id="jobs", classes="pane")
        self.entitle("jobs")

    def show_jobs(self, frame: Frame) -> None:
        self.show(job_rows(frame), lambda row: job_key(row.job), sticks=True)
        self.entitle(f"jobs {len(self.rows)}")
