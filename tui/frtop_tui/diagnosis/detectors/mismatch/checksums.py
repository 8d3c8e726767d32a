"""From a hint that ops differ to what differs, or that nothing does.

Members of a group whose sums differ are asked for their ops, one of each side; what comes back
is judged as any other op. Where the ops are overwritten by then, who differs from whom is
known all the same, and between which ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.group_frontier import local_number
from frtop_tui.diagnosis.detectors.mismatch.compare import Mismatch, Party
from frtop_tui.diagnosis.detectors.mismatch.compare import compare as compare_ops
from frtop_tui.diagnosis.finding import Detail, Finding, group_key
from frtop_tui.diagnosis.model import OpName
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import ObservedFrame, Rank
from frtop_tui.job.parting import Parting

MOST_SIDES: Final = 4
MOST_PAIRED: Final = 64
"""Ranks that are asked when splits do not pair: nobody knows beforehand whose."""
MOST_UNPROVEN: Final = 8
SETTLED_NS: Final = 2_000_000_000
"""Until then a member may not have told yet: who is the minority is still open."""


class OpsRequest(NamedTuple):
    """The ops `first` to `last` of a rank's group (its own number for it), for a parting."""

    host: str
    key: int
    rank: int
    group: int
    first: int
    last: int
    parting: int


@dataclass(frozen=True, slots=True)
class HintOutcome:
    """What is known of them by now, and what to ask for to know more."""

    found: tuple[Mismatch, ...] = ()
    findings: tuple[Finding, ...] = ()
    wanted: tuple[OpsRequest, ...] = ()


class ChecksumsDiffer(Detail, frozen=True):
    """Checksums over ops differ, and which op it was is lost. `over`: all ranks have ended."""

    hint: Parting
    over: bool


class ChecksumHints:
    """Remembers what was asked, and what came of it."""

    def __init__(self) -> None:
        self._asked: set[tuple[int, int]] = set()
        self._results: dict[int, tuple[Parting, Mismatch | None]] = {}
        self._unproven: dict[Identifier, Parting] = {}
        self._found: set[Identifier] = set()

    def compare(self, frame: ObservedFrame) -> HintOutcome:
        """Once per frame."""
        found: list[Mismatch] = []
        wanted: list[OpsRequest] = []
        for parting in frame.partings:
            samples = self._samples(parting, frame.ranks)
            missing = [rank for rank in samples if rank not in parting.ops]
            wanted += self._wanted(parting, missing, frame.ranks)
            ripe = parting.complete or frame.now_ns - parting.since_ns >= SETTLED_NS
            if not missing and ripe and len(samples) > 1:
                one = self._result(parting, samples, frame.ranks)
                if one is not None:
                    found.append(one)
        self._forget({parting.id for parting in frame.partings})
        findings = [_finding(parting, frame) for parting in self._unproven.values()]
        return HintOutcome(tuple(found), tuple(findings), tuple(wanted))

    def _samples(self, parting: Parting, views: Mapping[int, Rank]) -> list[int]:
        """One rank of each side, or with splits all: those that were asked, else that can be."""
        if parting.pairs:
            return [rank for rank in parting.sides[0] if rank in views][:MOST_PAIRED]
        chosen = []
        for side in parting.sides[:MOST_SIDES]:
            known = [rank for rank in side if rank in views]
            asked = (rank for rank in known if (parting.id, rank) in self._asked)
            heard = (rank for rank in known if views[rank].state != "unheard")
            best = next(asked, next(heard, next(iter(known), None)))
            if best is not None:
                chosen.append(best)
        return chosen

    def _wanted(
        self, parting: Parting, ranks: list[int], views: Mapping[int, Rank]
    ) -> list[OpsRequest]:
        made = []
        for rank in ranks:
            view = views[rank]
            group = local_number(view, parting.group)
            if group is not None and (parting.id, rank) not in self._asked:
                self._asked.add((parting.id, rank))
                made.append(
                    OpsRequest(
                        view.host, view.key, rank, group, parting.first, parting.last, parting.id
                    )
                )
        return made

    def _result(
        self, parting: Parting, samples: list[int], views: Mapping[int, Rank]
    ) -> Mismatch | None:
        known = self._results.get(parting.id)
        if known is not None and known[0] is parting:
            return known[1]
        one = _parted(parting, samples, views)
        self._results[parting.id] = parting, one
        key = identifier(parting.group)
        if one is not None:
            self._found.add(key)
            self._unproven.pop(key, None)
        elif not _whole(parting, samples) and key not in self._found:
            before = self._unproven.get(key)
            same = before is not None and before.id == parting.id
            if same or (before is None and len(self._unproven) < MOST_UNPROVEN):
                self._unproven[key] = parting
        return one

    def _forget(self, ids: set[int]) -> None:
        if self._results.keys() - ids:
            self._results = {n: known for n, known in self._results.items() if n in ids}
        if len(self._asked) > len(ids) * MOST_PAIRED:
            self._asked = {asked for asked in self._asked if asked[0] in ids}


def _parted(parting: Parting, samples: list[int], views: Mapping[int, Rank]) -> Mismatch | None:
    """The first op that differs; each side is of one mind with the one who was asked."""
    sides = {rank: side for side in parting.sides for rank in samples if rank in side}
    by_number: dict[int, dict[int, wire.Op]] = {}
    for rank in samples:
        for op in parting.ops.get(rank, ()):
            if parting.first <= op.number <= parting.last:
                by_number.setdefault(op.number, {})[rank] = op
    for number in sorted(by_number):
        ops = by_number[number]
        one = compare_ops(parting.group, number, ops) if len(ops) > 1 else None
        if one is None:
            continue
        parties = one.parties
        if not parting.pairs:
            whole = (
                Party(tuple(sorted(r for rank in p.ranks for r in sides[rank] if r in views)), p.op)
                for p in one.parties
            )
            parties = tuple(sorted(whole, key=lambda p: (-len(p.ranks), p.ranks)))
        since = min(op.issued_ns + views[rank].clock_ns for rank, op in ops.items())
        return replace(one, parties=parties, since_ns=since)
    return None


def _whole(parting: Parting, samples: list[int]) -> bool:
    """Whether all ops in question were seen: then those that differ do so legally."""
    asked_all = not parting.pairs or len(samples) == len(parting.sides[0])
    wanted = set(range(parting.first, parting.last + 1))
    return asked_all and all(
        wanted <= {op.number for op in parting.ops.get(rank, ())} for rank in samples
    )


def _finding(hint: Parting, frame: ObservedFrame) -> Finding:
    """Who differs from whom, and between which ops; the ops themselves are lost."""
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
