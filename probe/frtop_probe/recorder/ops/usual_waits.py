"""How long ops of each call site usually take, smoothed and written into the ring.

A hook only stores what it measured; the recorder's thread processes that at each heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring import layout

MAX_STORED: Final = 1024
"""Waits stored until the next heartbeat; a power of two. The list has this length from the start:
growing it at an op would take memory between the program's tensors and fragment malloc."""

Measured = tuple[int, int, bool]
"""A site, a wait in ns, and whether it is exact; if not, the wait was at most this long."""


class UsualWaits:
    """The smoothed wait of each call site."""

    def __init__(self, ring: OwnRing) -> None:
        self.measured: list[Measured | None] = [None] * MAX_STORED
        """By the last bits of the op's sequence number: code that completes an op writes here."""
        self._ring = ring
        self._smoothed: dict[int, tuple[int, int, bool]] = {}

    def update(self, more: Iterable[Measured] = ()) -> None:
        """Takes in what was measured since the last heartbeat: each new wait counts an eighth.

        Upper bounds count only until there is an exact one.
        """
        ring, measured = self._ring, self.measured
        found = list(more)
        for index, one in enumerate(measured):
            if one is not None:
                measured[index] = None
                found.append(one)
        touched = set()
        for site, wait_ns, exact in found:
            if not site:
                continue
            count, smooth, was_exact = self._smoothed.get(site, (0, wait_ns, exact))
            if was_exact and not exact:
                continue
            if exact and not was_exact:
                count, smooth = 0, wait_ns
            self._smoothed[site] = (count + 1, smooth + ((wait_ns - smooth) >> 3), exact)
            touched.add(site)
        for site in touched:
            if site < ring.shape.sites:
                body = layout.SITE_BODY.pack(*self._smoothed[site])
                at = ring.shape.sites_offset + site * layout.SITE_ROW.size
                layout.SITE_ROW.pack_into(ring.map, at, body, crc32(body))
