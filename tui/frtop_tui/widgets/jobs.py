"""All known jobs, one per line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from msgspec.structs import replace
from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.job_activity import activity_in, activity_text
from frtop_tui.job.model import JobActivity
from frtop_tui.job.naming import job_address, job_key, job_title
from frtop_tui.job.units import duration
from frtop_tui.job.unprepared import is_least_since, recorder_text
from frtop_tui.widgets.spans import Span
from frtop_tui.widgets.table import Column, LineTable


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job, whether it still runs, and whether it is the one on the screen."""

    job: wire.Job
    live: bool
    shown: bool
    pulse: JobActivity | None = None

    @property
    def age_s(self) -> float:
        return self.pulse.age_s if self.pulse is not None else 0.0

    @property
    def address(self) -> str:
        return job_address(self.job)


def job_rows(frame: Frame) -> list[JobRow]:
    """The job on the screen first, then the live ones, then the others."""
    running = {job_key(job) for job in frame.running_jobs}
    rows = [
        JobRow(job, job_key(job) in running, False, activity_in(frame, job))
        for job in frame.other_jobs
    ]
    rows.sort(key=lambda row: not row.live)
    if frame.job is None:
        return rows
    over = frame.health == "ended" or all(r.exit_info is not None for r in frame.ranks.values())
    live = bool(frame.ranks) and not over
    pulse = activity_in(frame, frame.job)
    idle = [group.idle_s(frame.now_ns) for group in frame.groups if group.number]
    if pulse is not None and pulse.quiet_s is None and idle:
        last_ns = frame.now_ns - int(min(idle) * 1e9)
        pulse = replace(pulse, quiet_s=min(idle), dated=not is_least_since(frame, last_ns))
    return [JobRow(frame.job, live, True, pulse), *rows]


def _title(row: JobRow) -> Span:
    # As `--job` accepts it; torch counts attempts from 0.
    attempt = f"#{row.job.attempt}" if row.job.attempt else ""
    mark = ">" if row.shown else " "
    return (f"{mark} {job_title(row.job)}{attempt}", "strong" if row.shown else "")


def _last_op(row: JobRow) -> Span:
    words = activity_text(row.pulse) if row.live else ""
    short = words.removeprefix("last op ").replace("at least ", ">= ")
    return (short, "warn" if words.startswith("waits") else "dim")


def _recorder(row: JobRow) -> Span:
    if row.pulse is None:
        return ("", "")
    unprepared = row.pulse.unprepared
    return (recorder_text(row.pulse.ranks, unprepared), "warn" if unprepared else "dim")


def _quiet_s(row: JobRow) -> float:
    return row.pulse.quiet_s or 0.0 if row.pulse is not None else 0.0


def _state(row: JobRow) -> Span:
    word = "live" if row.live else "ended"
    return (f"{word}, shown" if row.shown else word, "good" if row.live else "dim")


COLUMNS: Final[tuple[Column[JobRow], ...]] = (
    Column("  job", 0, _title, lambda r: job_title(r.job)),
    Column("state", 11, _state, lambda r: r.live),
    Column(
        "ranks",
        5,
        lambda r: (str(r.job.world_size or ""), ""),
        lambda r: r.job.world_size,
        right=True,
    ),
    Column(
        "age",
        6,
        lambda r: (duration(r.age_s) if r.pulse is not None else "", ""),
        lambda r: r.age_s,
        right=True,
    ),
    Column("recorder", 8, _recorder, lambda r: _recorder(r)[0], needs=100),
    Column("last op", 12, _last_op, _quiet_s),
    Column("run id", 20, lambda r: (r.job.run_id, "dim"), lambda r: r.job.run_id, needs=110),
    Column("address", 16, lambda r: (r.address, "dim"), lambda r: r.address, wide=24),
    Column("nonce", 10, lambda r: (r.job.nonce, "dim"), lambda r: r.job.nonce, needs=130),
)


class JobTable(LineTable[JobRow]):
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
