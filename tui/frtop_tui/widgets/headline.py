"""The top two lines of every screen: the job, its health, and how many of its ranks report.

For a recorded job, a third line on top says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import Health, Recorded
from frtop_tui.job.naming import folded_hosts, job_title
from frtop_tui.job.units import counted, duration, of_time, timing
from frtop_tui.job.unprepared import is_least_since, preparation
from frtop_tui.text.health_words import health_words, is_partly_healthy
from frtop_tui.widgets.file_status import files_summary, short_path
from frtop_tui.widgets.gauge_cells import sparkline
from frtop_tui.widgets.grid_layout import host_names
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, fit, join, plain, spread, width_of

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
    "mismatch": "alarm",
    "undecided": "warn",
    "ended": "strong",
}
NO_TIMEOUT = ("healthy", "starting", "ended", "connecting", "empty")
"""Jobs with this health are not about to time out."""

_NAME: Final = " frtop  "
_MOST_BARS: Final = 24
_FEWEST_STEPS: Final = 4


def job_name(frame: Frame) -> str:
    """The job's title, or that there is none yet."""
    return "no job yet" if frame.job is None else job_title(frame.job)


def job_line(frame: Frame, width: int = 0) -> Line:
    """The job's name, attempt, size, hosts and age; a small `width` leaves out some words."""
    line = _job_line(frame, preparation(frame.coverage, len(frame.ranks)))
    if not frame.coverage.unprepared or not width or width_of(line) <= width:
        return line
    return _job_line(frame, preparation(frame.coverage, len(frame.ranks)).partition(":")[0])


def _job_line(frame: Frame, seen: str) -> Line:
    names = tuple(sorted(host_names(frame.ranks)))
    world = frame.job.world_size if frame.job else len(frame.ranks)
    return join(
        (
            plain(job_name(frame), "strong"),
            plain(f"attempt {frame.job.attempt}" if frame.job and frame.job.attempt else ""),
            plain(other_jobs(frame), "warn"),
            plain(counted(world, "rank") if frame.job else ""),
            plain(folded_hosts(names or tuple(host.name for host in frame.hosts))),
            plain(seen, "warn"),
            plain(f"up {duration(frame.up_s)}" if frame.up_s else "", "dim"),
        )
    )


def other_jobs(frame: Frame) -> str:
    """`+2 other jobs (J)`; empty when there are none."""
    count = len(frame.other_jobs)
    word = "other job" if frame.job else "job"
    return f"+{counted(count, word)} (J)" if count else ""


def health_line(frame: Frame) -> Line:
    """The job's health, since when, and the time left until the nearest timeout."""
    left = [verdict.left_s for verdict in frame.verdicts if verdict.left_s is not None]
    limit = ""
    if left and frame.health not in NO_TIMEOUT:
        nearest = min(left)
        most = "at most " if is_least_since(frame, frame.since_ns) else ""
        passed = "its timeout has passed"
        limit = f"times out in {most}{duration(nearest)}" if nearest > 0 else passed
        if frame.recorded is not None and nearest > 0:
            limit = f"{duration(nearest)} were left"
    if frame.health == "empty" and frame.problem:
        limit = str(frame.problem)
    tone = "warn" if is_partly_healthy(frame) else HEALTH_TONE[frame.health]
    return (f" {health_words(frame)} ", tone), *plain(f"· {limit}" if limit else "", "warn")


def steps_line(frame: Frame, room: int) -> Line:
    """The last steps of one rank as bars, and how long the newest took; empty if few are known.

    The lowest bar is a fast step, a full one takes twice as long: a step that is a tenth longer
    than the others can be seen.
    """
    known = frame.statistics.steps if frame.statistics is not None else {}
    rank = min(known, default=0)
    took = [step.took_ns for step in known.get(rank, ())]
    if len(took) < _FEWEST_STEPS:
        return ()
    fast = sorted(took)[len(took) // 5]
    title, last = f"steps of rank {rank} ", f" last {timing(took[-1])}"
    width = min(_MOST_BARS, len(took), room - len(title) - len(last))
    if width < _FEWEST_STEPS:
        return ()
    bars = sparkline(tuple(max(0, ns - fast) for ns in took), width, fast).lstrip()
    return ((title, "dim"), (bars, ""), (last, "dim"))


def coverage_line(frame: Frame) -> Line:
    """`64/64 reporting`; in another tone where coverage is partial."""
    coverage = frame.coverage
    if not coverage.expected and frame.health == "empty":
        return plain("agents answer", "dim")
    if not coverage.expected:
        return plain("no report yet", "warn")
    text = f"{coverage.reporting}/{coverage.expected} reporting"
    if coverage.lost_updates:
        text += f", {coverage.lost_updates} updates lost"
    return plain(text, "dim" if coverage.complete else "warn")


def recording_line(recorded: Recorded, width: int) -> Line:
    """`CAPTURE of 2026-11-20 03:02 by alice@laptop · not live`, as wide as the screen."""
    by = f" by {recorded.by}" if recorded.by else ""
    when = of_time(recorded.wall_ns)
    words = f" {recorded.kind.upper()}{when}{by} · not live{', ages as of that time' * bool(when)}"
    room = width - len(words) - 3
    path = short_path(recorded.path)
    return ((fit(f"{words} · {path}" if len(path) <= room else words, width), "cursor"),)


class Headline(LineView, can_focus=False):
    """The job, or the path of open screens in `crumbs`; then the job's health."""

    def __init__(self) -> None:
        super().__init__(id="headline")
        self.frame: Frame | None = None
        self.crumbs: Line = ()
        self.badge: Line = ()

    def content(self, width: int) -> Sequence[Line]:
        frame = self.frame
        if frame is None:
            return ()
        first = (
            (*plain(" "), *self.crumbs)
            if self.crumbs
            else (*plain(_NAME, "key"), *job_line(frame, width - len(_NAME)))
        )
        rights = "read-only" if frame.read_only and frame.recorded is None else ""
        left: Line = (*plain(" "), *health_line(frame))
        files = plain(files_summary(frame), "strong")
        right = join((self.badge, files, plain(rights), coverage_line(frame)))
        if width_of(left) + width_of(right) + 2 > width:  # the health is worth more
            right = join((self.badge, plain(rights), files or coverage_line(frame)))
        above = () if frame.recorded is None else (recording_line(frame.recorded, width),)
        if steps := steps_line(frame, width - width_of(left) - width_of(right) - 4):
            left = (*left, *plain("  "), *steps)
        return (*above, clip(first, width), spread(left, (*right, *plain(" ")), width))
