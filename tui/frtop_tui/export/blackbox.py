"""Black boxes of a job, one per host, as one frame: what was so, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import structs
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.diagnosis.judged import Frame
from frtop_tui.diagnosis.wholes import with_histories
from frtop_tui.export.capture import content_of, damaged
from frtop_tui.export.histories import inflate
from frtop_tui.export.replay import play
from frtop_tui.job.model import Coverage, Recorded
from frtop_tui.job.naming import JobKey, folded, job_key, job_names

KIND: Final = "blackbox"
SUFFIX: Final = ".box"
OVER: Final = "this is a black box: the job has ended, there is nobody to ask"
_LATEST_NS: Final = 2**63
_MOST_SHIFT_NS: Final = 2**62


@dataclass(frozen=True, slots=True)
class Found:
    """One box and where it lay."""

    path: Path
    box: wire.BlackBox


def load(path: Path) -> Found:
    """Reads one box.

    Raises:
        Unreadable: it is no black box, or damaged.
    """
    try:
        box = wire.decode_box(content_of(path, KIND))
    except wire.WireError as error:
        raise damaged(path, str(error)) from error
    moments = [box.wall_ns, box.monotonic_ns, box.after.monotonic_ns]
    moments += [box.before.monotonic_ns] if box.before is not None else []
    if not all(0 <= moment < _MOST_SHIFT_NS for moment in moments) or box.wall_ns >= _LATEST_NS:
        raise damaged(path, "its times make no sense")
    return Found(path, box)


def names(found: Sequence[Found]) -> set[str]:
    return {name for one in found for name in job_names(one.box.job)}


def jobs_of(found: Sequence[Found]) -> dict[JobKey, list[Found]]:
    """Boxes by job, the one that was written last first.

    A box of ranks that never reached their first group has no nonce: it belongs to the
    job that is alike in everything else, if there is but one.
    """
    jobs: dict[JobKey, list[Found]] = {}
    for one in found:
        jobs.setdefault(job_key(one.box.job), []).append(one)
    for key in [key for key in jobs if not key[-1]]:
        known = [other for other in jobs if other[:-1] == key[:-1] and other[-1]]
        if len(known) == 1:
            jobs[known[0]] += jobs.pop(key)
    ordered = sorted(jobs.items(), key=lambda item: -max(one.box.wall_ns for one in item[1]))
    return dict(ordered)


def frame_of(found: Sequence[Found]) -> Frame:
    """One job's boxes, judged."""
    path = found[0].path if len(found) == 1 else found[0].path.parent
    job = next((one.box.job for one in found if one.box.job.nonce), found[0].box.job)
    boxes = {name: _of_one_job(box, job) for name, box in _by_host(found).items()}
    frame = play(boxes)
    histories = {
        (name, answer.key): answer.history
        for name, box in boxes.items()
        for answer in box.histories
    }
    ranks = {
        rank: inflate(view, histories.get((view.host, view.key)), frame.now_ns)
        for rank, view in frame.ranks.items()
    }
    newest = max(boxes.values(), key=lambda box: box.wall_ns)
    told = tuple(_about(boxes))
    recorded = Recorded("black box", str(path), newest.wall_ns, "", newest.version, told)
    coverage = _coverage(frame.coverage, frame)
    return with_histories(
        replace(frame, ranks=ranks, coverage=coverage, recorded=recorded, read_only=OVER)
    )


def _by_host(found: Sequence[Found]) -> Mapping[str, wire.BlackBox]:
    """Boxes by the name to show; of two about the same ranks the one that knows more."""
    hosts: dict[str, wire.BlackBox] = {}
    said: set[int] = set()
    ordered = sorted(found, key=lambda one: (one.box.complete, one.box.wall_ns), reverse=True)
    for box in (one.box for one in ordered):
        ranks = {r.identity.rank for r in box.after.ranks if r.identity is not None}
        if ranks and ranks <= said:
            continue  # an earlier agent of the same host, or an earlier version of the file
        said |= ranks
        name = box.host or "unknown"
        if name in hosts:
            name = f"{name} ({sum(known.host == box.host for known in hosts.values()) + 1})"
        hosts[name] = box
    return dict(sorted(hosts.items()))


def _of_one_job(box: wire.BlackBox, job: wire.Job) -> wire.BlackBox:
    """All of its ranks as members of `job`: some had not heard its nonce when they died."""
    before = _renamed(box.before, job) if box.before is not None else None
    return structs.replace(box, before=before, after=_renamed(box.after, job))


def _renamed(update: wire.Update, job: wire.Job) -> wire.Update:
    world = job.world_size if 0 <= job.world_size <= MAX_RANKS else 0
    same = structs.replace(job, world_size=world)
    ranks = tuple(
        structs.replace(rank, identity=structs.replace(rank.identity, job=same))
        if rank.identity is not None
        else rank
        for rank in update.ranks
    )
    return structs.replace(update, ranks=ranks)


def _about(boxes: Mapping[str, wire.BlackBox]) -> list[str]:
    """What a reader has to know about how this came together."""
    notes = []
    if len(boxes) > 1:
        notes.append(
            f"the clocks of {len(boxes)} hosts are taken as they were: times between hosts are"
            " as right as these"
        )
    partial = [name for name, box in boxes.items() if not box.complete]
    if partial:
        notes.append(f"written before all ranks had ended: {', '.join(partial)}")
    return notes


def _coverage(coverage: Coverage, frame: Frame) -> Coverage:
    """In the words of files: who is missing was not written down."""
    never = [rank for rank in coverage.unheard if rank not in frame.ranks]
    if not never:
        return coverage
    notes = [note for note in coverage.notes if " never heard of: " not in note]
    gone = f"no black box tells of {folded(never)}: fetch those of their hosts, too"
    return replace(coverage, notes=(gone, *notes), unheard=coverage.unheard)
