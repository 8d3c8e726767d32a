"""Who a rank without a recorder is: by its launcher, its title, or its largest group. Pure."""

from __future__ import annotations

import hashlib
import os
import time
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.unprepared.c10d_state import place_of
from frtop_probe.unprepared.c10d_state import NO_GROUPS, NO_MODULE
from frtop_probe.unprepared.discovery.facts import Candidate, FoundJob
from frtop_probe.unprepared.model import C10dState

NO_GROUPS_YET: Final = frozenset({NO_GROUPS, NO_MODULE})
"""Reasons why there are no groups, where nothing else is to be said."""
_NS_PER_TICK: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def identity_of(
    candidate: Candidate,
    found: FoundJob,
    c10d: C10dState | None,
    *,
    earlier: C10dState | None,
    started_ns: int,
) -> wire.Identity:
    """Who it is: its launcher says so, or else its largest group.

    `earlier` is its last c10d state with groups: it counts once the rank has destroyed them.
    """
    rank, world = candidate.rank, candidate.world_size
    named_by = c10d if c10d is not None and c10d.groups else earlier
    groups = named_by.groups if named_by is not None else ()
    everybody = max(groups, key=lambda group: group.size, default=None)
    if everybody is not None and everybody.ranks is not None:
        in_order = 0 <= everybody.rank < len(everybody.ranks)
        rank = everybody.ranks[everybody.rank] if rank is None and in_order else rank
        world = everybody.size if world is None else world
    address, port, run_id = place_of(found.identity)
    return wire.Identity(
        pid=candidate.pid,
        start_ticks=candidate.start_ticks,
        rank=-1 if rank is None else rank,
        local_rank=-1 if candidate.local_rank is None else candidate.local_rank,
        job=wire.Job(
            master_addr=address,
            master_port=port,
            world_size=world or 0,
            run_id=run_id,
            nonce=hashlib.sha256(found.identity.encode()).hexdigest()[:8],
            name=found.name,
        ),
        started_ns=started_ns,
        prepared=False,
        c10d_readable=c10d is not None and (bool(c10d.groups) or c10d.reason in NO_GROUPS_YET),
    )


def started_ns(start_ticks: int) -> int:
    """When a process started, by the monotonic clock.

    The kernel counts it from the boot, with the time for which the host was suspended; other times
    do not count that.
    """
    suspended_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return start_ticks * _NS_PER_TICK - suspended_ns
