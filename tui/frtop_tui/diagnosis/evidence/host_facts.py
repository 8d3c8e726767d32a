"""What is out of the ordinary on a host, by its gauges: GPUs, processors, memory, links, disks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal

from msgspec import Struct

from frtop_tui.diagnosis.causes import SlowWord
from frtop_tui.diagnosis.thresholds import (
    BUSY_CPU,
    CAPPED_SHARE,
    FULL_BYTES,
    FULL_INODES,
    FULL_SHARE,
    GROWTH_BLOCKS,
    GROWTH_LEFT_S,
    GROWTH_NS,
    HELD_BACK,
    PRESSURE_CPU,
    PRESSURE_IO,
    PRESSURE_MEMORY,
    RETRANSMITS,
    SATURATED,
    STOLEN_CPU,
    WORKING_GPU,
)
from frtop_tui.job.host_gauges import UNKNOWN, GaugedSubject, HostGauges
from frtop_tui.job.model import HostView

FactKind = Literal[
    "cpu pressure",  # all processors are busy, and tasks wait for one
    "cpu stolen",  # the hypervisor gives this machine's processors to others
    "memory pressure",
    "io pressure",
    "memory grows",  # a rank's, steadily
    "held back",  # a cgroup has used up its processor time in some periods
    "out of memory",  # the kernel has killed a process for lack of memory
    "disk full",
    "disk silent",  # a file system does not answer
    "nic saturated",
    "retransmits",  # much of what TCP sends is lost
    "link errors",
    "link down",
    "gpu slow",  # its clocks are held down
    "gpu shared",  # another process computes on it
    "gpu error",  # an XID, or it cannot be read
]
CAUSES: Final[dict[FactKind, SlowWord]] = {
    "cpu pressure": "starved",
    "cpu stolen": "starved",
    "memory pressure": "starved",
    "io pressure": "data",
    "held back": "starved",
    "disk silent": "data",
    "nic saturated": "network",
    "retransmits": "network",
    "link errors": "network",
    "link down": "network",
    "gpu slow": "throttled",
    "gpu shared": "neighbour",
}
"""The cause of slowness for which a fact is evidence; some are evidence for none."""
SHARES: Final[frozenset[FactKind]] = frozenset({
    "cpu pressure", "cpu stolen", "held back", "memory pressure", "io pressure",
})  # fmt: skip
"""Facts whose value is a share of the time, in permille."""


class HostFact(Struct, frozen=True):
    """What is out of the ordinary about one subject.

    `keys` are those of the ranks it concerns, empty for the whole host. `since_ns` is on the host's
    clock, 0 if not known; `at_least`: it was so before the history begins. `value` is compared with
    `limit`, in the unit of the kind. `bits` are NVML's reasons.
    """

    kind: FactKind
    subject: str
    keys: tuple[int, ...] = ()
    value: int = 0
    limit: int = 0
    since_ns: int = 0
    at_least: bool = False
    bits: int = 0
    text: str = ""  # the subject's own words

    @property
    def most(self) -> float:
        """The largest share of time that it can cost; 1 if its value does not bound that."""
        return self.value / 1000 if self.kind in SHARES else 1.0

    @property
    def cause(self) -> str:
        """The cause of slowness for which it is evidence; "" for none."""
        return CAUSES.get(self.kind, "")


def since(
    gauges: HostGauges, subject: GaugedSubject, gauge: str, holds: Callable[[int], bool]
) -> tuple[int, bool]:
    """Since when `holds` has been true of a gauge, and whether it was when the history begins.

    Readings before a gap in the history do not count.
    """
    values, times = gauges.past(subject, gauge), gauges.past_times()
    if len(values) != len(times):
        return 0, False
    begin = 0
    for value, at_ns in zip(reversed(values), reversed(times), strict=True):
        if value == UNKNOWN or not holds(value):
            return begin, False
        begin = at_ns
    return begin, bool(begin)


def risen(gauges: HostGauges, subject: GaugedSubject, gauge: str) -> tuple[int, int]:
    """By how much a counter rose within the history, and when it last did; (0, 0) if it did not."""
    values, times = gauges.past(subject, gauge), gauges.past_times()
    if len(values) != len(times):
        return 0, 0
    by = last_ns = 0
    before: int | None = None
    for value, at_ns in zip(values, times, strict=True):
        if value == UNKNOWN:
            continue
        if before is not None and value > before:
            by, last_ns = by + value - before, at_ns
        before = value
    newest = subject.values.get(gauge)
    if before is not None and newest is not None and newest > before:
        by, last_ns = by + newest - before, gauges.at_ns
    return by, last_ns


FORCED: Final = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's reasons that no setting causes: hardware slowdown, heat, a power brake."""
POWER_CAP: Final = 0x4
"""The power limit, which a hard-working GPU usually reaches."""


def _gpu(gauges: HostGauges, gpu: GaugedSubject) -> Iterator[HostFact]:
    if gpu.problem:
        yield HostFact("gpu error", gpu.name, gpu.keys, text=gpu.problem)
    if bits := _slow_bits(gpu):
        begin, at_least = since(gauges, gpu, "throttle", lambda value: bool(value & bits))
        clock, highest = gpu.values.get("sm_mhz", 0), gpu.values.get("max_sm_mhz", 0)
        yield HostFact("gpu slow", gpu.name, gpu.keys, clock, highest, begin, at_least, bits)
    others = gpu.values.get("others", 0)
    if others:
        begin, at_least = since(gauges, gpu, "others", (1).__le__)
        memory = gpu.values.get("others_mem", 0)
        yield HostFact("gpu shared", gpu.name, gpu.keys, others, memory, begin, at_least)
    by, last_ns = risen(gauges, gpu, "xids")
    known = gpu.values.get("xids", 0)
    if by or known:
        xid = gpu.values.get("xid", 0)
        yield HostFact("gpu error", gpu.name, gpu.keys, max(by, known), xid, last_ns)


def _slow_bits(gpu: GaugedSubject) -> int:
    """The reasons for unusually low clocks now, 0 for none.

    At its power limit a GPU is slower than it could be, which is normal. It counts only far below
    the highest clock, while the GPU works.
    """
    throttle = gpu.values.get("throttle", 0)
    bits = throttle & FORCED
    clock, highest = gpu.values.get("sm_mhz"), gpu.values.get("max_sm_mhz")
    if throttle & POWER_CAP and clock is not None and highest:
        capped = clock < CAPPED_SHARE * highest and gpu.values.get("use", 0) >= WORKING_GPU
        bits |= POWER_CAP if capped else 0
    return bits


def _pressure(gauges: HostGauges, host: GaugedSubject) -> Iterator[HostFact]:
    """Pressure; for processors only if none is free."""
    rules: tuple[tuple[FactKind, str, int], ...] = (
        ("cpu pressure", "psi_cpu", PRESSURE_CPU),
        ("cpu stolen", "steal", STOLEN_CPU),
        ("memory pressure", "psi_memory_full", PRESSURE_MEMORY),
        ("io pressure", "psi_io_full", PRESSURE_IO),
    )
    for kind, gauge, limit in rules:
        value = host.values.get(gauge, 0)
        if value < limit or (kind == "cpu pressure" and host.values.get("cpu", 0) < BUSY_CPU):
            continue
        begin, at_least = since(gauges, host, gauge, limit.__le__)
        yield HostFact(kind, "", (), value, limit, begin, at_least)
    yield from _kills(gauges, host)


def _held_back(gauges: HostGauges, cgroup: GaugedSubject) -> Iterator[HostFact]:
    value = cgroup.values.get("throttled", 0)
    if value >= HELD_BACK:
        begin, at_least = since(gauges, cgroup, "throttled", HELD_BACK.__le__)
        limit = cgroup.values.get("cpu_limit", 0)
        yield HostFact("held back", cgroup.name, cgroup.keys, value, limit, begin, at_least)
    yield from _kills(gauges, cgroup)


def _kills(gauges: HostGauges, subject: GaugedSubject) -> Iterator[HostFact]:
    """Kills since the history began: older ones do not concern present processes."""
    by, last_ns = risen(gauges, subject, "oom_kills")
    if by:
        yield HostFact("out of memory", subject.name, subject.keys, by, 0, last_ns)


MINUTE_NS = 60_000_000_000


def _growth(gauges: HostGauges) -> Iterator[HostFact]:
    """One for each growing rank, if together they would use up the host or their cgroup."""
    times = gauges.past_times()
    growing = [
        (rank, pace)
        for rank in gauges.of_kind("rank")
        if (pace := _pace_of(times, gauges.past(rank, "mem"))) > 0
    ]
    for rank, pace in growing:
        room = _room(gauges, rank)
        together = sum(other for one, other in growing if _shares(gauges, rank, one))
        left_s = None if room is None else round(60 * room / together)
        if left_s is not None and left_s <= GROWTH_LEFT_S:
            yield HostFact("memory grows", rank.name, rank.keys, pace, left_s, times[0], True)


def _pace_of(times: Sequence[int], values: Sequence[int]) -> int:
    """Bytes per minute by which the minimum of each part grew; 0 unless it grew in every part."""
    known = [(at, value) for at, value in zip(times, values, strict=False) if value != UNKNOWN]
    if len(known) < 2 * GROWTH_BLOCKS or known[-1][0] - known[0][0] < GROWTH_NS:
        return 0
    begin, length = known[0][0], known[-1][0] - known[0][0] + 1
    least: list[int | None] = [None] * GROWTH_BLOCKS
    for at, value in known:
        place = (at - begin) * GROWTH_BLOCKS // length
        before = least[place]
        least[place] = value if before is None else min(before, value)
    found = [value for value in least if value is not None]
    if len(found) < GROWTH_BLOCKS or any(after <= before for before, after in pairwise(found)):
        return 0
    passed_ns = length * (GROWTH_BLOCKS - 1) / GROWTH_BLOCKS
    return round((found[-1] - found[0]) * MINUTE_NS / passed_ns)


def _room(gauges: HostGauges, rank: GaugedSubject) -> int | None:
    """The memory that a rank has left: in its host or its cgroup, whichever is less."""
    free = gauges.host.get("mem_available")
    rooms = [free] if free is not None else []
    group = _cgroup(gauges, rank)
    if group is not None and group.values.get("mem_limit") and "mem_used" in group.values:
        rooms.append(max(0, group.values["mem_limit"] - group.values["mem_used"]))
    return min(rooms, default=None)


def _shares(gauges: HostGauges, rank: GaugedSubject, other: GaugedSubject) -> bool:
    """Whether both use the same memory: the host's, or that of one limited cgroup."""
    group = _cgroup(gauges, rank)
    if group is None or not group.values.get("mem_limit"):
        return True
    return _cgroup(gauges, other) is group


def _cgroup(gauges: HostGauges, rank: GaugedSubject) -> GaugedSubject | None:
    keys = set(rank.keys)
    groups = (one for one in gauges.of_kind("cgroup") if keys & set(one.keys))
    return next(groups, None) if keys else None


_ACTIVE: Final = 4
"""The state of an InfiniBand port that carries data."""
_WAYS: Final = ("received", "sent")


def _lost(gauges: HostGauges, host: GaugedSubject) -> Iterator[HostFact]:
    """TCP retransmissions: losses that no interface of this host counts."""
    value = host.values.get("retransmits", 0)
    if value >= RETRANSMITS:
        begin, at_least = since(gauges, host, "retransmits", RETRANSMITS.__le__)
        yield HostFact("retransmits", "", (), value, RETRANSMITS, begin, at_least)


def _link(gauges: HostGauges, link: GaugedSubject) -> Iterator[HostFact]:
    """Trouble of an interface or port; which one a rank uses is not known."""
    state = link.values.get("state")
    # A port that was always down has no cable: most hosts have some.
    if state is not None and state != _ACTIVE and _ACTIVE in gauges.past(link, "state"):
        begin, at_least = since(gauges, link, "state", lambda value: value != _ACTIVE)
        yield HostFact("link down", link.name, (), state, _ACTIVE, begin, at_least,
                       text=link.detail)  # fmt: skip
    speed = link.values.get("speed", 0)
    for way in _WAYS:
        rate = link.values.get(way, 0)
        limit = round(SATURATED * speed)
        if speed and rate >= limit:
            begin, at_least = since(gauges, link, way, limit.__le__)
            yield HostFact("nic saturated", link.name, (), rate, speed, begin, at_least, text=way)
    for gauge in ("errors", "link_downed"):
        by, last_ns = risen(gauges, link, gauge)
        if by:
            yield HostFact("link errors", link.name, (), by, 0, last_ns, text=gauge)


def _disk(gauges: HostGauges, disk: GaugedSubject) -> Iterator[HostFact]:
    if disk.problem:
        yield HostFact("disk silent", disk.name, disk.keys, text=disk.problem)
        return
    size, free = disk.values.get("size", 0), disk.values.get("free")
    most = min(FULL_BYTES, round(FULL_SHARE * size))
    if size and free is not None and free <= most:
        begin, at_least = since(gauges, disk, "free", lambda value: value <= most)
        yield HostFact("disk full", disk.name, disk.keys, free, size, begin, at_least)
    # There may be room, but no free inode.
    left = disk.values.get("inodes_free")
    if left is not None and left <= FULL_INODES:
        begin, at_least = since(gauges, disk, "inodes_free", FULL_INODES.__ge__)
        yield HostFact("disk full", disk.name, disk.keys, left, 0, begin, at_least, 0, "inodes")


FACT_GAUGES: Final = (
    "errors", "free", "inodes_free", "link_downed", "oom_kills", "others", "psi_cpu",
    "psi_io_full", "psi_memory_full", "received", "retransmits", "sent", "state", "steal",
    "throttle", "throttled", "xids",
)  # fmt: skip
"""Gauges whose histories date facts; most seldom change, so they cost little."""


def facts_of(gauges: HostGauges | None) -> tuple[HostFact, ...]:
    """The facts of one host."""
    if gauges is None:
        return ()

    def of_each(
        kind: str, find: Callable[[HostGauges, GaugedSubject], Iterator[HostFact]]
    ) -> Iterator[HostFact]:
        return (fact for one in gauges.of_kind(kind) for fact in find(gauges, one))

    return (
        *of_each("gpu", _gpu),
        *of_each("host", _pressure),
        *of_each("cgroup", _held_back),
        *_growth(gauges),
        *of_each("host", _lost),
        *of_each("infiniband", _link),
        *of_each("nic", _link),
        *of_each("disk", _disk),
    )


def facts_for(host: HostView, keys: Iterable[int]) -> tuple[HostFact, ...]:
    """The facts of a reporting host that may concern ranks with these keys."""
    if host.state != "reporting":
        return ()
    wanted = frozenset(keys)
    return tuple(fact for fact in facts_of(host.gauges) if not fact.keys or wanted & set(fact.keys))


MOST_KNOWN: Final = 16_384
_known: Final[dict[str, tuple[HostGauges, tuple[HostFact, ...]]]] = {}


def facts_of_host(host: HostView) -> tuple[HostFact, ...]:
    """The facts of a host; they are computed again only for new gauges."""
    if host.gauges is None:
        return ()
    known = _known.get(host.name)
    if known is None or known[0] is not host.gauges:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        known = _known[host.name] = host.gauges, facts_of(host.gauges)
    return known[1]
