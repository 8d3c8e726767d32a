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
from frtop_tui.diagnosis.judged import OpName, Verdict, Why
from frtop_tui.diagnosis.phrases import group_key, who
from frtop_tui.diagnosis.signatures import Disagreement, Party, compare
from frtop_tui.diagnosis.standing import local_number
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import DivergenceHint, ObservedFrame, Rank
from frtop_tui.job.naming import folded, group_label

MOST_SIDES: Final = 4
MOST_PAIRED: Final = 64
"""Ranks that are asked when splits do not pair: nobody knows beforehand whose."""
MOST_UNPROVEN: Final = 8
SETTLED_NS: Final = 2_000_000_000
"""Until then a member may not have told yet: who is the minority is still open."""


class WantedOps(NamedTuple):
    """The ops `first` to `last` of a rank's group (its own number for it), for a parting."""

    host: str
    key: int
    rank: int
    group: int
    first: int
    last: int
    parting: int


@dataclass(frozen=True, slots=True)
class Parted:
    """What is known of them by now, and what to ask for to know more."""

    found: tuple[Disagreement, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    wanted: tuple[WantedOps, ...] = ()


class Partings:
    """Remembers what was asked, and what came of it."""

    def __init__(self) -> None:
        self._asked: set[tuple[int, int]] = set()
        self._results: dict[int, tuple[DivergenceHint, Disagreement | None]] = {}
        self._unproven: dict[Identifier, DivergenceHint] = {}
        self._found: set[Identifier] = set()

    def judge(self, frame: ObservedFrame) -> Parted:
        """Once per frame."""
        found: list[Disagreement] = []
        wanted: list[WantedOps] = []
        for parting in frame.divergence_hints:
            samples = self._samples(parting, frame.ranks)
            missing = [rank for rank in samples if rank not in parting.ops]
            wanted += self._wanted(parting, missing, frame.ranks)
            ripe = parting.complete or frame.now_ns - parting.since_ns >= SETTLED_NS
            if not missing and ripe and len(samples) > 1:
                one = self._result(parting, samples, frame.ranks)
                if one is not None:
                    found.append(one)
        self._forget({parting.id for parting in frame.divergence_hints})
        verdicts = [unproven(parting, frame) for parting in self._unproven.values()]
        return Parted(tuple(found), tuple(verdicts), tuple(wanted))

    def _samples(self, parting: DivergenceHint, views: Mapping[int, Rank]) -> list[int]:
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
        self, parting: DivergenceHint, ranks: list[int], views: Mapping[int, Rank]
    ) -> list[WantedOps]:
        made = []
        for rank in ranks:
            view = views[rank]
            group = local_number(view, parting.group)
            if group is not None and (parting.id, rank) not in self._asked:
                self._asked.add((parting.id, rank))
                made.append(
                    WantedOps(
                        view.host, view.key, rank, group, parting.first, parting.last, parting.id
                    )
                )
        return made

    def _result(
        self, parting: DivergenceHint, samples: list[int], views: Mapping[int, Rank]
    ) -> Disagreement | None:
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


def _parted(
    parting: DivergenceHint, samples: list[int], views: Mapping[int, Rank]
) -> Disagreement | None:
    """The first op that differs; each side is of one mind with the one who was asked."""
    sides = {rank: side for side in parting.sides for rank in samples if rank in side}
    by_number: dict[int, dict[int, wire.Op]] = {}
    for rank in samples:
        for op in parting.ops.get(rank, ()):
            if parting.first <= op.number <= parting.last:
                by_number.setdefault(op.number, {})[rank] = op
    for number in sorted(by_number):
        ops = by_number[number]
        one = compare(parting.group, number, ops) if len(ops) > 1 else None
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


def _whole(parting: DivergenceHint, samples: list[int]) -> bool:
    """Whether all ops in question were seen: then those that differ do so legally."""
    asked_all = not parting.pairs or len(samples) == len(parting.sides[0])
    wanted = set(range(parting.first, parting.last + 1))
    return asked_all and all(
        wanted <= {op.number for op in parting.ops.get(rank, ())} for rank in samples
    )


def unproven(parting: DivergenceHint, frame: ObservedFrame) -> Verdict:
    """Who differs from whom, and between which ops: what they were is known no more."""
    label = group_label(parting.group.name, parting.group.description)
    between = f"between #{parting.first} and #{parting.last} of {label}"
    if parting.first == parting.last:
        between = f"at #{parting.first} of {label}"
    main, *others = parting.sides
    rest = tuple(sorted(rank for side in others for rank in side))
    culprits: tuple[int, ...] = ()
    if parting.pairs:
        head = f"what ranks sent and received in all_to_all {between} does not pair"
        step = f"compare the splits of {folded(main)} {between}"
    else:
        odd = others[0]
        step = f"compare the calls of ranks {odd[0]} and {main[0]} {between}"
        if len(main) > len(rest):
            culprits = rest
            head = f"{who(frame.ranks, rest)} issued something else {between} than {folded(main)}"
        else:
            head = f"{folded(odd)} and {folded(main)} issued different ops {between}"
    over = all(view.state in ("dead", "done") for view in frame.ranks.values())
    return Verdict(
        kind="mismatch",
        confidence="suspect",
        progress="none" if over else "active",
        culprits=culprits,
        headline=head,
        why=Why(
            "mismatch",
            "software",
            "sums over their ops differ; data may be wrong without any error"
            + ("; the job has ended" if over else ""),
        ),
        next=f"{step}; if it comes again while frtop watches, the op will be named",
        parties=(culprits, main) if culprits else parting.sides,
        group=group_key(parting.group),
        op=OpName("ops", parting.first),
        since_ns=parting.since_ns,
        missing=("which op it was: it could not be read, or was overwritten by then",),
    )
