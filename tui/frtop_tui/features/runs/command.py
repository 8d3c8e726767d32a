"""Reads the black boxes of a folder; a run is the boxes of one job, one for each host."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.cli.output import show_progress
from frtop_tui.errors import Unreadable
from frtop_tui.files import blackbox
from frtop_tui.files.blackbox import BoxFile
from frtop_tui.files.paths import files_in
from frtop_tui.job.host_gauges import GaugeRecord, HostGauges
from frtop_tui.job.naming import job_call, job_title, printable, rank_words, typed
from frtop_tui.job.units import counted, duration, local_time, utc_time
from frtop_tui.statistics.run_gauges import CPU, GPU, mean_of
from frtop_tui.text.document import aligned
from frtop_tui.text.rank_words import format_exit

FOUND: Final = 0
NONE_FOUND: Final = 1
_TITLES: Final = ("ended", "job", "took", "step", "ranks", "hosts", "CPU", "GPU", "end", "--job")
_WORDS: Final = frozenset({"ended", "job", "end", "--job"})
_LONGEST_NAME: Final = 30


class Run(Struct, frozen=True):
    """One run. `took_s` is from the start of its first process to its end; 0: not known."""

    job: wire.Job
    call: str
    ended_wall_ns: int
    took_s: float
    step: int
    ranks: int
    hosts: int
    failed: tuple[tuple[int, str], ...]
    """Ranks that ended badly and how, the first one first."""
    complete: bool
    """Whether all of its boxes were written to the end."""
    cpu: float | None = None
    """Permille of processors in use, the mean over its minutes and hosts; None: not known."""
    gpu: float | None = None
    """The same of the time in which its GPUs were busy."""

    @property
    def end(self) -> str:
        """How it ended."""
        if not self.failed:
            return "well" if self.complete else "not seen"
        how = self.failed[0][1]
        same = [rank for rank, other in self.failed if other == how]
        text = f"{rank_words(fold(same), 20)} {how}"
        rest = len(self.failed) - len(same)
        return f"{text}, then {counted(rest, 'other')}" if rest else text


def run(options: argparse.Namespace) -> int:
    """Returns 0 with runs, 1 without."""
    files = files_in([Path(path) for path in options.paths])
    boxes, problems = [], list(files.problems)
    for number, path in enumerate(files.boxes, 1):
        show_progress(f"reading black boxes: {number:,} of {len(files.boxes):,}")
        try:
            boxes.append(blackbox.load(path))
        except Unreadable as error:
            problems.append(str(error))
    show_progress("")
    runs = runs_in(boxes)
    if options.json:
        document = {
            "schema": "frtop-runs-1",
            "runs": [*map(_document, runs)],
            "problems": problems,
        }
        print(json.dumps(document, indent=1))
    else:
        print("\n".join(lines_of(runs)))
        print(*map(printable, problems), sep="\n", end="\n" * bool(problems), file=sys.stderr)
    return FOUND if runs else NONE_FOUND


def runs_in(boxes: Sequence[BoxFile]) -> list[Run]:
    """The runs of these boxes, the newest first."""
    jobs = [[one.box for one in files] for files in blackbox.jobs_of(boxes).values()]
    names = [_job_of(own) for own in jobs]
    return [_run(own, job, names) for own, job in zip(jobs, names, strict=True)]


def lines_of(runs: Sequence[Run]) -> list[str]:
    """A table, or what to do to have runs in it."""
    if not runs:
        return [
            "no black box here",
            "  next: frtop run --record DIR -- torchrun ..., then: frtop runs DIR",
        ]
    rows = [
        (
            local_time(one.ended_wall_ns),
            job_title(one.job)[:_LONGEST_NAME],
            duration(one.took_s) if one.took_s else "",
            f"{one.step:,}" if one.step else "",
            f"{one.ranks:,}",
            f"{one.hosts:,}",
            CPU.shown(one.cpu) if one.cpu is not None else "",
            GPU.shown(one.gpu) if one.gpu is not None else "",
            one.end,
            typed(one.call),
        )
        for one in runs
    ]
    return [printable(line) for line in aligned([_TITLES, *rows], _WORDS)]


def _job_of(boxes: Sequence[wire.BlackBox]) -> wire.Job:
    """A box of ranks that never met the others has no nonce."""
    return next((box.job for box in boxes if box.job.nonce), boxes[0].job)


def _run(boxes: Sequence[wire.BlackBox], job: wire.Job, among: Sequence[wire.Job]) -> Run:
    ranks = [(box, rank) for box in boxes for rank in box.after.ranks]
    gauges = [found for box in boxes if (found := _gauges_of(box)) is not None]
    ended_ns = max(_ends(boxes), default=max(box.wall_ns for box in boxes))
    begun_ns = [_wall(box, one.identity.started_ns) for box, one in ranks
                if one.identity is not None and one.identity.started_ns]  # fmt: skip
    bad = sorted(
        (_wall(box, one.exit_info.at_ns), one.identity.rank, format_exit(one.exit_info))
        for box, one in ranks
        if one.exit_info is not None and one.identity is not None and _is_bad(one.exit_info)
    )
    return Run(
        job,
        job_call(job, among),
        ended_ns,
        max(0.0, (ended_ns - min(begun_ns)) / 1e9) if begun_ns else 0.0,
        max((one.status.step for _, one in ranks if one.status is not None), default=0),
        len({one.identity.rank if one.identity is not None else -1 - one.key for _, one in ranks}),
        len({box.host for box in boxes}),
        tuple((rank, how) for _, rank, how in bad),
        all(box.complete for box in boxes),
        *(mean_of(gauges, which) for which in (CPU, GPU)),
    )


def _gauges_of(box: wire.BlackBox) -> HostGauges | None:
    """Means of each minute; None of a run shorter than that."""
    record = GaugeRecord()
    if box.minutes is not None:
        record.apply_history(box.minutes)
    return record.view()


def _ends(boxes: Iterable[wire.BlackBox]) -> list[int]:
    return [
        _wall(box, rank.exit_info.at_ns)
        for box in boxes
        for rank in box.after.ranks
        if rank.exit_info is not None
    ]


def _is_bad(end: wire.ExitInfo) -> bool:
    return end.signal is not None or bool(end.exit_code) or not (end.clean or end.exit_code == 0)


def _wall(box: wire.BlackBox, at_ns: int) -> int:
    """A time of the box's host as Unix time."""
    return at_ns + box.wall_ns - box.monotonic_ns


def _document(one: Run) -> dict[str, Any]:
    """The object of a run; keys are only ever added."""
    return {
        "job": job_title(one.job),
        "name": one.call,
        "attempt": one.job.attempt,
        "ended": utc_time(one.ended_wall_ns),
        "took_s": round(one.took_s, 1),
        "step": one.step,
        "ranks": one.ranks,
        "hosts": one.hosts,
        "well": not one.failed and one.complete,
        "cpu": None if one.cpu is None else round(one.cpu / 1000, 4),
        "gpu": None if one.gpu is None else round(one.gpu / 1000, 4),
        "end": one.end,
        "failed": [{"rank": rank, "how": how} for rank, how in one.failed],
    }
