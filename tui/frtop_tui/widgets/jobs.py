"""All jobs that are known, one a line: told apart by attempt, run id and place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_tui.job.model import Frame
from frtop_tui.job.naming import job_key, job_title
from frtop_tui.widgets.spans import Span
from frtop_tui.widgets.table import Column, LineTable


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job, and how it stands."""

    job: wire.Job
    lives: bool
    shown: bool

    @property
    def place(self) -> str:
        return f"{self.job.master_addr}:{self.job.master_port}"


def rows_of(frame: Frame) -> list[JobRow]:
    """The one on the screen first, then those that live, then the others."""
    running = {job_key(job) for job in frame.running_jobs}
    rows = [JobRow(job, job_key(job) in running, False) for job in frame.other_jobs]
    rows.sort(key=lambda row: not row.lives)
    if frame.job is None:
        return rows
    over = frame.health == "ended" or all(r.ending is not None for r in frame.ranks.values())
    return [JobRow(frame.job, bool(frame.ranks) and not over, True), *rows]


def _title(row: JobRow) -> Span:
    return (f"{'>' if row.shown else ' '} {job_title(row.job)}", "strong" if row.shown else "")


def _state(row: JobRow) -> Span:
    word = "live" if row.lives else "ended"
    return (f"{word}, shown" if row.shown else word, "good" if row.lives else "dim")


COLUMNS: Final[tuple[Column[JobRow], ...]] = (
    Column("  job", 0, _title, lambda r: job_title(r.job)),
    Column("state", 12, _state, lambda r: r.lives),
    Column(
        "ranks",
        6,
        lambda r: (str(r.job.world_size or ""), ""),
        lambda r: r.job.world_size,
        right=True,
    ),
    # From 0 inside torch; people and launchers say "attempt 0" too.
    Column("attempt", 7, lambda r: (str(r.job.attempt), ""), lambda r: r.job.attempt, right=True),
    Column("run id", 12, lambda r: (r.job.run_id, "dim"), lambda r: r.job.run_id, wide=38),
    Column("place", 20, lambda r: (r.place, "dim"), lambda r: r.place, wide=30),
    Column("nonce", 10, lambda r: (r.job.nonce, "dim"), lambda r: r.job.nonce, needs=130),
)


class JobTable(LineTable[JobRow]):
    """The cursor stays on its job."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "show", tooltip="look at this job from now on", id="job.open"),
    ]

    def __init__(self) -> None:
        empty = "no job is known yet: `frtop run -- torchrun ...` starts one"
        super().__init__(COLUMNS, empty, id="jobs", classes="pane")
        self.entitle("jobs")

    def show_jobs(self, frame: Frame) -> None:
        stays = self.chosen
        self.rows = rows_of(frame)
        self.entitle(f"jobs {len(self.rows)}")
        if stays is not None:
            keys = [job_key(row.job) for row in self.rows]
            key = job_key(stays.job)
            if key in keys:
                self.move_to(keys.index(key) + 1)
        self.redraw()
