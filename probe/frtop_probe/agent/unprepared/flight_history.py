"""What torch's Flight Recorder kept of one rank without a recorder of ours, as last read.

Nothing is read here: `UnpreparedWatch` reads a ring when somebody asks, and hands the look over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.block_builder import BlockBuilder, encode_blocks
from frtop_probe.agent.unprepared.c10d_state import counted
from frtop_probe.agent.unprepared.flight_ops import KnownGroup, entry_of, ops_of
from frtop_probe.agent.unprepared.op_table import OpTable
from frtop_probe.consistency.checksums import signature_digest, weight
from frtop_probe.consistency.signatures import RULE_OF_SIZES
from frtop_probe.unprepared.flight_ring import NO_RING
from frtop_probe.unprepared.flight_settings import OFF, SIZE_NAMES, SWITCH_ON
from frtop_probe.unprepared.model import FlightRing
from frtop_probe.unprepared.worker import Look

MAX_OPS: Final = 4096
"""Ops of one rank. The ring has 2,000 by default."""
_MOST_UNNUMBERED: Final = 512
"""Ops that are read again because their numbers could not be compared; some never can be."""
MISSING: Final = "reduce ops, roots and durations are not in it; ages are since the call"
MISSING_OF_GLOO: Final = f"messages, {MISSING}"

GroupIds = Mapping[tuple[str, str], int]
"""The rank's own numbers of its groups, by name and kind of backend."""


class FlightHistory:
    """The ops of the last read, and sums over those that came with it."""

    def __init__(self) -> None:
        self._ops = OpTable(MAX_OPS)
        self.note = ""
        self.lost = 0
        self.read_ns = 0
        """When the ring was last read, monotonic; 0 for never."""
        self._builders: dict[int, BlockBuilder] = {}
        self._recorded: dict[str, int] = {}

    @property
    def ops(self) -> tuple[wire.Op, ...]:
        """All of them, oldest first."""
        return self._ops.ops()

    def take(
        self, look: Look, ids: GroupIds, at_ns: int, wall_offset_ns: int
    ) -> tuple[wire.BlockSums, ...]:
        """Takes in a look with rings, and returns the sums over what is new in it.

        Args:
            look: with the state of c10d before and after the rings.
            ids: of the groups in it.
            at_ns: monotonic clock.
            wall_offset_ns: wall clock minus monotonic clock.
        """
        self.read_ns = at_ns
        rings = [ring for ring in look.rings if ring.recorded and not ring.reason]
        if not rings:
            self.note = _why_none(look)
            return ()  # what an earlier read has shown is still true
        known = _known_groups(look, ids)
        ops: list[wire.Op] = []
        for ring in rings:
            ops += ops_of(ring, known.get(ring.kind, {}), wall_offset_ns)
        self._ops.merge(ops)
        self.lost = sum(ring.torn for ring in rings)
        self._recorded = {ring.kind: ring.recorded for ring in look.rings}
        self.note = "; ".join(f"{_described(ring, len(self._ops))}" for ring in rings)
        backends = {one.id: kind for kind, groups in known.items() for one in groups.values()}
        return tuple(self._sums(backends))

    def since(self) -> dict[str, int]:
        """By kind of ring, the id of the first entry that is new, was not over, or not numbered."""
        since = dict(self._recorded)
        for back, op in enumerate(self._ops.newest_first()):
            unnumbered = not op.group and not op.p2p and back < _MOST_UNNUMBERED
            if not op.done_ns or unnumbered:
                kind, number = entry_of(op)
                since[kind] = number
        return since

    def recent(self, limit: int) -> tuple[tuple[wire.Op, ...], int]:
        """The newest `limit` ops, oldest first, and how many in between could not be read."""
        return (self._ops.ops(-limit) if limit else ()), self.lost

    def history(self, limit: int = 0) -> wire.History:
        """The newest `limit` ops (0: all)."""
        return self._ops.history(self.lost, self.note, limit=limit)

    def excerpt(self, group: int, first: int, last: int) -> wire.History:
        """The collectives of one group numbered `first` to `last`."""
        return self._ops.history(
            0, self.note, only=lambda of, number: of == group and first <= number <= last
        )

    def recent_sums(self) -> tuple[wire.BlockSums, ...]:
        """The sums of late, for whoever asks for the full state."""
        return tuple(
            one
            for group, builder in self._builders.items()
            for one in encode_blocks(group, builder.recent, RULE_OF_SIZES)
        )

    def _sums(self, backends: Mapping[int, str]) -> Iterator[wire.BlockSums]:
        """Sums over the ops that were not in an earlier read, by group.

        Args:
            backends: kinds of backend by group.
        """
        for group in self._builders.keys() - backends.keys():
            del self._builders[group]
        digests: dict[int, int | None] = {}
        newest = {group: number for group, number, _ in self._ops.numbers()}
        for group, number, signature in self._ops.numbers():
            if group not in backends:
                continue
            builder = self._builders.get(group)
            if builder is None or newest[group] < builder.end - 1:  # or made anew
                builder = self._builders[group] = BlockBuilder(group, number)
            if number < builder.end:
                continue
            if number > builder.end:
                builder.skip(number - 1)  # overwritten since the last read
            if signature is not None and id(signature) not in digests:
                digests[id(signature)] = signature_digest(signature, backends[group], RULE_OF_SIZES)
            digest = digests[id(signature)] if signature is not None else None
            if digest is None:
                builder.skip(number)
            else:
                builder.add(number, digest * weight(number), 0)
        for group, builder in self._builders.items():
            yield from encode_blocks(group, builder.cut(), RULE_OF_SIZES)


def _known_groups(look: Look, ids: GroupIds) -> dict[str, dict[str, KnownGroup]]:
    """By kind of ring, the groups of both states, by name."""
    if look.c10d is None or look.after is None:
        return {}
    later = {(group.name, group.ranks, one.kind): one for group, one in counted(look.after)}
    found: dict[str, dict[str, KnownGroup]] = {}
    for group, backend in counted(look.c10d):
        after = later.get((group.name, group.ranks, backend.kind))
        number = ids.get((group.name, backend.kind))
        if after is not None and number is not None and group.ranks is not None:
            one = KnownGroup(number, group.ranks, backend, after)
            found.setdefault(backend.kind, {})[group.name] = one
    return found


def _described(ring: FlightRing, known: int) -> str:
    last = f"the last {min(known, ring.recorded):,} of {ring.recorded:,} ops of {ring.kind}"
    return f"Flight Recorder: {last}; {MISSING_OF_GLOO if ring.kind == 'gloo' else MISSING}"


def _why_none(look: Look) -> str:
    """Why there is no history, and what to do next time."""
    reasons = [look.reason] if look.reason else [ring.reason for ring in look.rings if ring.reason]
    if not reasons:
        return "Flight Recorder: no op yet"
    named = [name for name in SIZE_NAMES if name in look.environment]
    off = OFF in reasons
    setting = f" ({named[0]}={look.environment[named[0]][:20]})" if off and named else ""
    step = f"; {SWITCH_ON}" if off or reasons == [NO_RING] else ""
    return f"not recorded: {'; '.join(dict.fromkeys(reasons))}{setting}{step}"
