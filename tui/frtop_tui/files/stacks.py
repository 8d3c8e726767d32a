"""Stacks that py-spy took, beside the dumps of the same ranks.

Ops say what a rank has issued; a stack says whether it waits, or what it does instead. Some ranks
have only a stack: one that holds the GIL may write no dump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import structs
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.stack_location import OP_WAITS
from frtop_tui.diagnosis.evidence.stack_state import has_device, stack_state
from frtop_tui.errors import Unreadable
from frtop_tui.files import pyspy
from frtop_tui.files.bounded_read import Progress, announced, quietly
from frtop_tui.files.flightrecorder.file_names import Claim, RankPattern
from frtop_tui.files.flightrecorder.file_names import assign_ranks as ranks_of
from frtop_tui.files.flightrecorder.file_names import parse_name as named
from frtop_tui.job.model import ObservedRank, Rank, as_rank
from frtop_tui.job.naming import folded

_SKEW_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Stacks:
    """The last stacks by rank, and those before them; `notes` say which were used."""

    last: dict[int, pyspy.Taken] = field(default_factory=dict)
    before: dict[int, pyspy.Taken] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _joined: dict[int, ObservedRank] = field(default_factory=dict)

    def join(self, views: dict[int, ObservedRank], job: wire.Job) -> None:
        """Adds stacks to the ranks in `views`, and adds the ranks that have only a stack.

        Leaves out a stack that is older than the last op of its rank.
        """
        stale, alone, inside = [], [], []
        known = pyspy.frame_of(Path(), self.last, (), self.before).ranks if self.last else {}
        on_device = any(map(has_device, (*views.values(), *known.values())))
        for rank, judged in known.items():
            observed = as_rank(ObservedRank, judged, "moving", judged.reported_ns)
            view, seen = views.get(rank), _of_job(observed, job)
            if view is None:
                views[rank] = _alone(seen, on_device=on_device)
                alone.append(rank)
                if views[rank].state == "unreachable":
                    inside.append(rank)
            elif seen.stacks_taken_ns and seen.stacks_taken_ns + _SKEW_NS < view.reported_ns:
                stale.append(rank)
                continue
            else:
                views[rank] = _joined(view, seen)
            self._joined[rank] = seen
        if stale:
            self.notes.append(f"stacks of {folded(stale)} are older than their last ops: left out")
        if alone:
            self.notes.append(f"{folded(alone)}: no dump, known only from stacks")
        if inside:
            text = f"{folded(inside)} may wait, too, by their stacks; in which op is unknown"
            self.notes.append(text)

    def tell(self, views: dict[int, ObservedRank]) -> None:
        """Judges from stacks alone which ranks in `views` wait, because no op is unfinished.

        That all ops are over does not show what ranks do now; ranks without stacks are unknown.
        """
        for rank, view in views.items():
            seen = self._joined.get(rank)
            if seen is None:
                evidence = structs.replace(view.evidence, has_numbers=False)
                views[rank] = replace(view, evidence=evidence)
                continue
            views[rank] = replace(
                seen,
                host=view.host or seen.host,
                groups=view.groups,
                group_progress=view.group_progress,
                pending=view.pending,
            )


def _of_job(seen: ObservedRank, job: wire.Job) -> ObservedRank:
    return replace(seen, identity=structs.replace(seen.identity, job=job))


def _alone(seen: ObservedRank, *, on_device: bool) -> ObservedRank:
    """A rank that has only a stack. If it waits, nobody knows in which op: unreachable."""
    waits = may_wait(seen, on_device=on_device)
    return as_rank(ObservedRank, seen, "unreachable" if waits else "moving", seen.reported_ns, None)


def may_wait(seen: Rank, *, on_device: bool) -> bool:
    """Whether a rank's stack waits in some op, or may, behind its device's full queue."""
    found = stack_state(seen)
    return found is not None and (
        found.activity == "inside"
        or found.at_device
        or found.location.kind in OP_WAITS
        or (on_device and found.activity == "running")
    )


def _joined(view: ObservedRank, seen: ObservedRank) -> ObservedRank:
    look = view.snapshot or wire.Snapshot(view.key, view.reported_ns)
    ident = seen.identity.main_ident
    return replace(
        view,
        host=view.host or seen.host,
        identity=structs.replace(view.identity, main_ident=ident),
        snapshot=structs.replace(look, dumps=(wire.StackDump(view.identity.pid, seen.threads),)),
        evidence=structs.replace(view.evidence, has_stacks=True),
        native=seen.native,
        stacks_taken_ns=max(seen.stacks_taken_ns, view.reported_ns),
    )


def read(
    paths: Sequence[Path],
    troubles: list[str],
    pattern: RankPattern | None = None,
    progress: Progress = quietly,
) -> Stacks:
    """The stacks in these files; adds a sentence to `troubles` for each unreadable file."""
    claims: list[Claim] = []
    taken: list[pyspy.Taken] = []
    for path in announced(paths, "stacks", progress):
        try:
            threads = pyspy.stacks_of(path)
            written = path.stat().st_mtime_ns
        except Unreadable as error:
            troubles.append(error.text)
            continue
        except OSError as error:
            troubles.append(f"{path} cannot be read: {error.strerror}")
            continue
        name = named(path, pattern)
        if name.number is None and path.name.endswith(pyspy.SUFFIX):
            name = named(path)  # a pattern says how dumps are named
        claims.append(
            Claim(path, name, None, frozenset((thread.ident, thread.tid) for thread in threads))
        )
        taken.append((name.host, threads, written))
    ranks, notes = ranks_of(claims)
    known = [(rank, one) for rank, one in zip(ranks, taken, strict=True) if rank is not None]
    return Stacks(*pyspy.split(known), notes)
