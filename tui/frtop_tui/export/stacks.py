"""Stacks that py-spy took, beside what else is known of the same ranks.

Ops say what a rank has issued, a stack whether it waits, and what it does instead. A rank of
which there is only a stack, as who holds the GIL may write no dump, is known by that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.diagnosis.places import WAITS
from frtop_tui.diagnosis.stands import stand_of
from frtop_tui.errors import Unreadable
from frtop_tui.export import pyspy
from frtop_tui.export.flightrecorder.naming import Claim, RankPattern, named, ranks_of
from frtop_tui.export.lines import texts_of, with_text
from frtop_tui.job.model import Posture, RankView
from frtop_tui.job.naming import folded

_SKEW_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Stacks:
    """By rank the last stacks, and those before them; `notes` say what became of them."""

    last: dict[int, pyspy.Taken] = field(default_factory=dict)
    before: dict[int, pyspy.Taken] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def join(self, views: dict[int, RankView], job: wire.Job) -> None:
        """Puts stacks to the ranks in `views`, and adds those of which there is nothing else.

        A stack that is older than what its rank has issued since tells nothing any more.
        """
        stale = []
        alone = {}
        for rank, taken in self.last.items():
            view = views.get(rank)
            if view is None:
                alone[rank] = taken
            elif taken[2] and taken[2] + _SKEW_NS < view.heard_ns:
                stale.append(rank)
            else:
                views[rank] = _joined(view, taken)
        inside = []
        for rank, view in self.views_of(alone, job).items():
            views[rank] = view
            if view.posture == "unheard":
                inside.append(rank)
        if stale:
            self.notes.append(f"stacks of {folded(stale)} are older than their last ops: left out")
        if alone:
            self.notes.append(f"{folded(alone)}: no dump, known by stacks alone")
        if inside:
            self.notes.append(
                f"{folded(inside)} wait, too, by their stacks; in which op is not known"
            )

    def views_of(self, taken: Mapping[int, pyspy.Taken], job: wire.Job) -> dict[int, RankView]:
        """Ranks of which there is only a stack. Who waits may wait in anything: unheard."""
        if not taken:
            return {}
        found = {}
        for rank, view in pyspy.frame_of(Path(), taken).ranks.items():
            stand = stand_of(view)
            waits = stand is not None and (stand.doing == "inside" or stand.place.kind in WAITS)
            posture: Posture = "unheard" if waits else "moving"
            identity = structs.replace(view.identity, job=job)
            plain = replace(view, identity=identity)
            found[rank] = plain.judged(posture, view.heard_ns, None)
        return found


def read(paths: Sequence[Path], troubles: list[str], pattern: RankPattern | None = None) -> Stacks:
    """The stacks in these files; what cannot be read is added to `troubles`."""
    claims: list[Claim] = []
    taken: list[pyspy.Taken] = []
    for path in paths:
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
        claims.append(
            Claim(path, name, None, frozenset((thread.ident, thread.tid) for thread in threads))
        )
        taken.append((name.host, threads, written))
    ranks, notes = ranks_of(claims)
    known = [(rank, one) for rank, one in zip(ranks, taken, strict=True) if rank is not None]
    return Stacks(*pyspy.split(known), notes)


def _joined(view: RankView, taken: pyspy.Taken) -> RankView:
    host, threads, written = taken
    texts = texts_of(threads, written)
    threads = tuple(with_text(thread, texts) for thread in threads)
    main = next((thread for thread in threads if thread.name == "MainThread"), threads[0])
    look = view.look or wire.Look(view.key, view.heard_ns)
    return replace(
        view,
        host=view.host or host,
        identity=structs.replace(view.identity, main_ident=main.ident),
        look=structs.replace(look, dumps=(wire.Dump(view.identity.pid, threads),)),
        stacks_ns=max(written, view.heard_ns),
    )
