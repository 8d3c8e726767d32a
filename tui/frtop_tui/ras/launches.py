"""Who has launched fewer ops of which kind than the others of a communicator.

Counts are launches on the host. They say nothing of completion, of sends and receives, and of
replays of CUDA graphs; so equal counts do not say that a communicator is well.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from frtop_probe import wire


@dataclass(frozen=True, slots=True)
class KindCounts:
    """Launches of one kind: the most of any rank, and ranks with fewer (rank, count)."""

    kind: str
    most: int
    fewer: tuple[tuple[int, int], ...]


def counts_by_kind(communicator: wire.RasCommunicator) -> tuple[KindCounts, ...]:
    """One row for each kind that any rank has launched, in RAS's order."""
    by_kind: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for rank in communicator.ranks:
        for kind, count in rank.counts:
            by_kind[kind][rank.rank] = count
    rows = []
    for kind, counts in by_kind.items():
        most = max(counts.values())
        if most:
            fewer = tuple((rank, count) for rank, count in counts.items() if count < most)
            rows.append(KindCounts(kind, most, fewer))
    return tuple(rows)


def status_words(rank: wire.RasRank) -> tuple[str, ...]:
    """What is out of the ordinary with a rank; () for a rank that runs."""
    found = []
    if rank.init_state == _IN_PROGRESS:
        found.append("its communicator is being made")
    elif rank.init_state:
        found.append(f"its communicator failed to be made (error {rank.init_state})")
    if rank.async_error not in (0, _IN_PROGRESS):
        found.append(f"asynchronous error {rank.async_error}")
    if rank.abort_flag:
        found.append("aborted")
    if rank.finalize_called or rank.destroy_flag:
        found.append("being destroyed")
    return tuple(found)


def moved(earlier: wire.RasReport, later: wire.RasReport) -> dict[tuple[str, str], frozenset[int]]:
    """By communicator of both answers (its two hashes): ranks whose counts have changed."""
    before = {(one.hash, one.secondary_hash): one for one in earlier.communicators}
    found: dict[tuple[str, str], frozenset[int]] = {}
    for one in later.communicators:
        known = before.get((one.hash, one.secondary_hash))
        if known is not None:
            counts = {rank.rank: rank.counts for rank in known.ranks}
            found[one.hash, one.secondary_hash] = frozenset(
                rank.rank
                for rank in one.ranks
                if rank.rank in counts and rank.counts != counts[rank.rank]
            )
    return found


_IN_PROGRESS = 7
"""ncclInProgress of ncclResult_t."""
