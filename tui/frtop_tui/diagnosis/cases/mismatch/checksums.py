"""From a hint that ops differ to the ops themselves, or to the proof that they agree.

If checksums of a group's members differ, one rank of each side is asked for its ops, and these are
compared like any others. If they have been overwritten, the finding names which ranks differ, and
between which ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.group_frontier import local_group_id
from frtop_tui.diagnosis.cases.mismatch.compare import (
    Mismatch,
    Party,
    compare,
    first_issued_ns,
)
from frtop_tui.diagnosis.finding import Detail, Finding, group_key
from frtop_tui.diagnosis.model import OpName
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.model import DivergenceHint, ObservedFrame, Rank

MOST_SIDES: Final = 4
MOST_PAIRED: Final = 64
"""Ranks to ask when splits do not pair: any of them may be wrong."""
MOST_UNSENT: Final = 8
MOST_UNPROVEN: Final = 8
UNANSWERED_NS: Final = 20_000_000_000
"""By then requests have ended, with or without ops; hints last longer."""
SETTLED_NS: Final = 2_000_000_000
"""Until then a member may not have reported yet, and the minority may change."""


class OpsRequest(NamedTuple):
    """Asks for ops `first` to `last` in a rank's `group` (its own id), for a hint."""

    host: str
    key: int
    rank: int
    group: int
    first: int
    last: int
    hint: int


class HintOutcome(NamedTuple):
    """What the hints led to, and what to ask for next."""

    found: tuple[Mismatch, ...] = ()
    findings: tuple[Finding, ...] = ()
    wanted: tuple[OpsRequest, ...] = ()
    unanswered: tuple[DivergenceHint, ...] = ()


class ChecksumsDiffer(Detail, frozen=True):
    """Checksums of ops differ, and the op is lost. `over`: all ranks have ended."""

    hint: DivergenceHint
    over: bool


class ChecksumHints:
    """Remembers which ops were asked for, and what they showed."""

    def __init__(self) -> None:
        self._asked: set[tuple[int, int]] = set()
        self._results: dict[int, tuple[DivergenceHint, Mismatch | None]] = {}
        self._unproven: dict[Identifier, DivergenceHint] = {}
        self._unanswered: dict[Identifier, DivergenceHint] = {}
        self._found: set[Identifier] = set()

    def compare(self, frame: ObservedFrame) -> HintOutcome:
        """Follows the hints of one frame."""
        found: list[Mismatch] = []
        wanted: list[OpsRequest] = []
        for hint in frame.divergence_hints:
            samples = self._samples(hint, frame.ranks)
            missing = [rank for rank in samples if rank not in hint.ops]
            due = hint.complete or frame.now_ns - hint.since_ns >= SETTLED_NS
            known = self._results.get(hint.id)
            is_news = known is None or known[0] is not hint  # its members may be thousands
            unsent = _unsent(hint, frame.ranks) if due and is_news else []
            asked = [*missing, *(rank for rank in unsent if rank not in hint.ops)]
            wanted += self._wanted(hint, asked, frame.ranks)
            if not missing and due and len(samples) > 1:
                answered = [rank for rank in unsent if rank in hint.ops]
                one = self._result(hint, samples, answered, frame.ranks)
                found += [one] if one is not None else []
            elif frame.now_ns - hint.since_ns >= UNANSWERED_NS and known is None:
                self._miss(hint)
        self._forget({hint.id for hint in frame.divergence_hints})
        findings = [_finding(hint, frame) for hint in self._unproven.values()]
        unanswered = tuple(self._unanswered.values())
        return HintOutcome(tuple(found), tuple(findings), tuple(wanted), unanswered)

    def _miss(self, hint: DivergenceHint) -> None:
        """Notes that it is not known whether the ops differ legally."""
        key = identifier(hint.group)
        if key not in self._found and len(self._unanswered) < MOST_UNPROVEN:
            self._unanswered.setdefault(key, hint)

    def _samples(self, hint: DivergenceHint, views: Mapping[int, Rank]) -> list[int]:
        """One rank of each side, or all if the op has splits; those asked before come first."""
        if hint.pairs:
            return [rank for rank in hint.sides[0] if rank in views][:MOST_PAIRED]

        def order(rank: int) -> int:
            if (hint.id, rank) in self._asked:
                return 0
            return 2 if views[rank].state == "unreachable" else 1

        sides = ([rank for rank in side if rank in views] for side in hint.sides[:MOST_SIDES])
        return [min(known, key=order) for known in sides if known]

    def _wanted(
        self, hint: DivergenceHint, ranks: list[int], views: Mapping[int, Rank]
    ) -> list[OpsRequest]:
        made = []
        for view in (views[rank] for rank in ranks if (hint.id, rank) not in self._asked):
            group = local_group_id(view, hint.group)
            if group is not None:
                self._asked.add((hint.id, view.rank))
                ops = (group, hint.first, hint.last)
                made.append(OpsRequest(view.host, view.key, view.rank, *ops, hint.id))
        return made

    def _result(
        self,
        hint: DivergenceHint,
        samples: list[int],
        answered: list[int],
        views: Mapping[int, Rank],
    ) -> Mismatch | None:
        known = self._results.get(hint.id)
        if known is not None and known[0] is hint:
            return known[1]
        one = _first_mismatch(hint, [*samples, *answered], views)
        self._results[hint.id] = hint, one
        key = identifier(hint.group)
        missed = self._unanswered.get(key)
        if missed is not None and (missed.id == hint.id or one is not None):
            del self._unanswered[key]
        if one is not None:
            self._found.add(key)
            self._unproven.pop(key, None)
        elif not _all_seen(hint, samples) and key not in self._found:
            before = self._unproven.get(key)
            if before.id == hint.id if before else len(self._unproven) < MOST_UNPROVEN:
                self._unproven[key] = hint
        return one

    def _forget(self, ids: set[int]) -> None:
        if self._results.keys() - ids:
            self._results = {n: known for n, known in self._results.items() if n in ids}
        if len(self._asked) > len(ids) * MOST_PAIRED:
            self._asked = {asked for asked in self._asked if asked[0] in ids}


def _unsent(hint: DivergenceHint, views: Mapping[int, Rank]) -> list[int]:
    """Members whose checksums are missing: these may be lost, but the ops may still be there."""
    if hint.complete or hint.pairs:
        return []
    reported = {rank for side in hint.sides for rank in side}
    members = members_of(hint.group.ranks)
    return [rank for rank in members if rank in views and rank not in reported][:MOST_UNSENT]


def _first_mismatch(
    hint: DivergenceHint, samples: list[int], views: Mapping[int, Rank]
) -> Mismatch | None:
    """The first op that differs. An asked rank stands for its side, or for itself if on no side."""
    sides = {rank: side for side in hint.sides for rank in samples if rank in side}
    by_number: dict[int, dict[int, wire.Op]] = {}
    for rank in samples:
        for op in hint.ops.get(rank, ()):
            if hint.first <= op.number <= hint.last:
                by_number.setdefault(op.number, {})[rank] = op
    for number in sorted(by_number):
        ops = by_number[number]
        one = compare(hint.group, number, ops) if len(ops) > 1 else None
        if one is None:
            continue
        parties = one.parties
        if not hint.pairs:
            completed = (
                Party(
                    tuple(
                        sorted(
                            r for rank in p.ranks for r in sides.get(rank, (rank,)) if r in views
                        )
                    ),
                    p.op,
                )
                for p in one.parties
            )
            parties = tuple(sorted(completed, key=lambda p: (-len(p.ranks), p.ranks)))
        return replace(one, parties=parties, since_ns=first_issued_ns(ops, views))
    return None


def _all_seen(hint: DivergenceHint, samples: list[int]) -> bool:
    """Whether all ops of the hint were seen: then they may legally differ."""
    asked_all = not hint.pairs or len(samples) == len(hint.sides[0])
    wanted = set(range(hint.first, hint.last + 1))
    return asked_all and all(
        wanted <= {op.number for op in hint.ops.get(rank, ())} for rank in samples
    )


def _finding(hint: DivergenceHint, frame: ObservedFrame) -> Finding:
    """Which ranks differ, and between which ops; the ops themselves are lost."""
    main, *others = hint.sides
    rest = tuple(sorted(rank for side in others for rank in side))
    culprits = rest if not hint.pairs and len(main) > len(rest) else ()
    over = all(view.state in ("dead", "done") for view in frame.ranks.values())
    return Finding(
        kind="mismatch",
        detail=ChecksumsDiffer(hint, over),
        key=("checksums", hint.id),
        culprits=culprits,
        parties=(culprits, main) if culprits else hint.sides,
        cause="mismatch",
        progress="none" if over else "active",
        group=group_key(hint.group),
        op=OpName("ops", hint.first),
        since_ns=hint.since_ns,
    )
