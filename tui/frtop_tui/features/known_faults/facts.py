"""The facts of a judged frame that may be signs of known faults. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.known_faults.matching import version_in
from frtop_tui.features.known_faults.model import Facts
from frtop_tui.job.environment import environment

MOST_RANKS: Final = 64
"""Ranks whose stacks are searched: culprits and parties first."""
_NCCL: Final = re.compile(r"NCCL version (\d[\d.]{0,20})")


def facts_of(frame: Frame) -> Facts | None:
    """None if no rank hangs or died: known faults are of no interest then."""
    verdicts = [one for one in frame.verdicts if one.kind != "slow"]
    if not verdicts:
        return None
    first = [rank for one in verdicts for rank in one.first_ranks]
    parties = [rank for one in verdicts for party in one.parties for rank in party]
    others = [rank for one in verdicts for rank in sorted(one.victims)]
    ranks = [rank for rank in dict.fromkeys([*first, *parties, *others]) if rank in frame.ranks]
    views = [frame.ranks[rank] for rank in ranks]
    shown = views[:MOST_RANKS]
    lines = [line for one in verdicts for line in (one.why.text, *one.evidence)]
    texts = [*lines, *frame.notes, *(frame.recorded.notes if frame.recorded is not None else ())]
    for view in shown:
        texts += view.notes
        texts += _output(view)
        if view.exception is not None:
            texts.append(f"{view.exception.kind}: {view.exception.text}")
    settings = environment(frame.ranks.values())
    by_name = {name: frozenset({value}) for name, value in settings.common.items()}
    by_name |= {name: frozenset(values) for name, values in settings.different.items()}
    hosts = Counter(view.host for view in frame.ranks.values())
    return Facts(
        torch=frozenset(view.identity.torch for view in frame.ranks.values()) - {""},
        nccl=frozenset(map(version_in, (*_written_in(texts), *_recorded_by(frame)))) - {()},
        texts=tuple(texts),
        threads=tuple(thread for view in shown for thread in _threads(view)),
        settings=by_name,
        differing=frozenset(settings.different),
        ops=frozenset(_kinds(views)) | {one.op.kind for one in verdicts if one.op is not None},
        world=frame.job.world_size if frame.job is not None else len(frame.ranks),
        hangs=any(one.kind != "dead" for one in verdicts),
        uneven="" not in hosts and len(set(hosts.values())) > 1 and frame.coverage.complete,
    )


def _output(view: JudgedRank) -> Iterator[str]:
    """The lines in its files, if somebody read them."""
    for file in view.output.files if view.output is not None else ():
        yield from file.text.splitlines()


def _written_in(texts: list[str]) -> Iterator[str]:
    """Versions of NCCL, as it and torch write them."""
    for text in texts:
        yield from _NCCL.findall(text)


def _recorded_by(frame: Frame) -> Iterator[str]:
    """Those with which ranks run. If another one was loaded instead, that may be in a log."""
    yield from {view.identity.nccl for view in frame.ranks.values()}


def _kinds(views: list[JudgedRank]) -> Iterator[str]:
    for view in views:
        if view.blocked_on is not None and view.blocked_on.signature is not None:
            yield view.blocked_on.signature.kind


def _threads(view: JudgedRank) -> Iterator[tuple[str, ...]]:
    """Stacks of Python, and of C and C++ if somebody took them.

    Those of exceptions are no signs: a rank that raised one does not hang there.
    """
    stacks = [thread.frames for thread in view.threads]
    if view.native is not None:
        stacks += [thread.frames for thread in view.native.dump.threads]
    for frames in stacks:
        yield tuple(map(_written, frames))


def _written(frame: wire.TraceFrame) -> str:
    return f"{frame.function} ({frame.file})"
