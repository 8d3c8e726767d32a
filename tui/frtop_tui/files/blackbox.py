"""Reads black boxes and joins those of one job, one per host, into one frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import structs
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.history_columns import unpack
from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.diagnosis.histories import with_histories
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.capture import content_of, damaged
from frtop_tui.files.histories import with_recorded_ops
from frtop_tui.files.replay import replay, wall_offset
from frtop_tui.job.model import Coverage, CoverageNote, Recorded
from frtop_tui.job.naming import JobKey, folded, job_key, job_names
from frtop_tui.job.units import local_clock
from frtop_tui.job.unprepared import NOT_PREPARED

KIND: Final = "blackbox"
SUFFIX: Final = ".box"
READ_ONLY_REASON: Final = "this is a black box: its job has ended"
_MAX_TIME_NS: Final = 2**62


@dataclass(frozen=True, slots=True)
class BoxFile:
    """One black box and its path."""

    path: Path
    box: wire.BlackBox


def load(path: Path) -> BoxFile:
    """Reads one black box.

    Raises:
        Unreadable: the file cannot be read, is damaged, or is no black box.
    """
    try:
        box = wire.decode_box(content_of(path, KIND))
    except wire.WireError as error:
        raise damaged(path, str(error)) from error
    times = [box.wall_ns, box.monotonic_ns, box.since_ns, box.after.monotonic_ns]
    times += [box.before.monotonic_ns] if box.before is not None else []
    if not all(0 <= time < _MAX_TIME_NS for time in times):
        raise damaged(path, "its times are impossible")
    try:
        for one in box.histories:
            if one.history.columns is not None:
                unpack(one.history.columns)
    except ValueError as error:
        raise damaged(path, str(error)) from error
    return BoxFile(path, box)


def names_of(files: Sequence[BoxFile]) -> set[str]:
    return {name for one in files for name in job_names(one.box.job)}


def jobs_of(files: Sequence[BoxFile]) -> dict[JobKey, list[BoxFile]]:
    """Boxes by job, the most recently written job first.

    A box whose ranks never reached their first group has no nonce. It belongs to the job
    that is equal in everything else, if there is only one.
    """
    jobs: dict[JobKey, list[BoxFile]] = {}
    for one in files:
        jobs.setdefault(job_key(one.box.job), []).append(one)
    for key in [key for key in jobs if not key[-1]]:
        known = [other for other in jobs if other[:-1] == key[:-1] and other[-1]]
        if len(known) == 1:
            jobs[known[0]] += jobs.pop(key)
    ordered = sorted(jobs.items(), key=lambda item: -max(one.box.wall_ns for one in item[1]))
    return dict(ordered)


def frame_of(files: Sequence[BoxFile]) -> Frame:
    """The judged frame of one job's boxes."""
    path = files[0].path if len(files) == 1 else files[0].path.parent
    job = next((one.box.job for one in files if one.box.job.nonce), files[0].box.job)
    boxes = {name: _with_job(box, job) for name, box in _by_host(files).items()}
    frame = replay(boxes)
    tables = {
        (name, response.key): response.history
        for name, box in boxes.items()
        for response in box.histories
    }
    histories = {
        rank: tables[view.host, view.key]
        for rank, view in frame.ranks.items()
        if (view.host, view.key) in tables
    }
    newest = max(boxes.values(), key=lambda box: box.wall_ns)
    notes = (*_notes(boxes), *_older(files, boxes))
    recorded = Recorded("black box", str(path), newest.wall_ns, "", newest.version, notes)
    if frame.wall_ns < 0:
        raise damaged(path, "its times are impossible")
    coverage = _coverage(frame.coverage, frame)
    frame = replace(frame, coverage=coverage, recorded=recorded, read_only=READ_ONLY_REASON)
    return with_histories(with_recorded_ops(frame, histories))


def _by_host(files: Sequence[BoxFile]) -> Mapping[str, wire.BlackBox]:
    """Boxes by the host name to show; if two have the same ranks, the more complete one."""
    hosts: dict[str, wire.BlackBox] = {}
    covered: set[int] = set()
    ordered = sorted(files, key=lambda one: (one.box.complete, one.box.wall_ns), reverse=True)
    for box in (one.box for one in ordered):
        ranks = {r.identity.rank for r in box.after.ranks if r.identity is not None}
        if ranks and ranks <= covered:
            continue  # from an earlier agent of the host, or an earlier version of the file
        covered |= ranks
        name = box.host or "unknown"
        if name in hosts:
            name = f"{name} ({sum(known.host == box.host for known in hosts.values()) + 1})"
        hosts[name] = box
    return dict(sorted(hosts.items()))


def _with_job(box: wire.BlackBox, job: wire.Job) -> wire.BlackBox:
    """The box, with all ranks in `job`: some did not know its nonce when they died."""
    before = _ranks_with_job(box.before, job) if box.before is not None else None
    return structs.replace(box, before=before, after=_ranks_with_job(box.after, job))


def _ranks_with_job(update: wire.Update, job: wire.Job) -> wire.Update:
    world = job.world_size if 0 <= job.world_size <= MAX_RANKS else 0
    same = structs.replace(job, world_size=world)
    ranks = tuple(
        structs.replace(rank, identity=structs.replace(rank.identity, job=same))
        if rank.identity is not None
        else rank
        for rank in update.ranks
    )
    return structs.replace(update, ranks=ranks)


def _notes(boxes: Mapping[str, wire.BlackBox]) -> list[str]:
    """What the reader must know about the limits of these boxes."""
    notes = []
    if len(boxes) > 1:
        notes.append(
            f"the clocks of {len(boxes)} hosts are used as they were: times between hosts are"
            " only as accurate as these clocks"
        )
    notes += _unprepared(boxes)
    partial = [name for name, box in boxes.items() if not box.complete]
    if partial:
        notes.append(f"written before all ranks had ended: {', '.join(partial)}")
    return notes


def _unprepared(boxes: Mapping[str, wire.BlackBox]) -> list[str]:
    """Since when the ranks without a recorder were followed."""
    since = {name: box.since_ns + wall_offset(box) for name, box in boxes.items() if box.since_ns}
    if not since:
        return []
    began = local_clock(min(since.values()))
    where = "" if len(since) == len(boxes) else f" on {', '.join(since)}"
    return [f"{NOT_PREPARED} from {began} on{where}; what happened earlier is unknown"]


def _older(files: Sequence[BoxFile], boxes: Mapping[str, wire.BlackBox]) -> list[str]:
    """A note on other boxes of the same ranks: a launcher's restart does not make another job."""
    older = len(files) - len(boxes)
    if not older or not any(box.since_ns for box in boxes.values()):
        return []
    return [f"there are older black boxes of this job: {older}; to see one, open it by name"]


def _coverage(coverage: Coverage, frame: Frame) -> Coverage:
    """The coverage with a note on the ranks that no box contains, instead of the live one."""
    missing = [rank for rank in coverage.unreachable if rank not in frame.ranks]
    if not missing:
        return coverage
    notes = [note for note in coverage.notes if note.kind != "never reported"]
    text = f"no black box contains {folded(missing)}: fetch those of their hosts, too"
    return replace(
        coverage,
        notes=(CoverageNote(text, "never reported"), *notes),
        unreachable=coverage.unreachable,
    )
