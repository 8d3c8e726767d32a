"""Whether a file system that ranks use is full, or does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from frtop_tui.diagnosis.evidence.host_fact import HostFact, since
from frtop_tui.diagnosis.thresholds import FULL_BYTES, FULL_INODES, FULL_SHARE
from frtop_tui.job.host_gauges import GaugedSubject, HostGauges


def disk_facts(gauges: HostGauges) -> tuple[HostFact, ...]:
    """Of all file systems of the ranks."""
    return tuple(fact for one in gauges.of_kind("disk") for fact in _facts(gauges, one))


def _facts(gauges: HostGauges, disk: GaugedSubject) -> Iterator[HostFact]:
    if disk.problem:
        yield HostFact("disk silent", disk.name, disk.keys, text=disk.problem)
        return
    size, free = disk.values.get("size", 0), disk.values.get("free")
    most = min(FULL_BYTES, round(FULL_SHARE * size))
    if size and free is not None and free <= most:
        begin, at_least = since(gauges, disk, "free", lambda value: value <= most)
        yield HostFact("disk full", disk.name, disk.keys, free, size, begin, at_least)
    yield from _few_inodes(gauges, disk)


def _few_inodes(gauges: HostGauges, disk: GaugedSubject) -> Iterator[HostFact]:
    """A file system may have room, and no place for one more file."""
    left = disk.values.get("inodes_free")
    if left is not None and left <= FULL_INODES:
        begin, at_least = since(gauges, disk, "inodes_free", FULL_INODES.__ge__)
        yield HostFact("disk full", disk.name, disk.keys, left, 0, begin, at_least, 0, "inodes")
