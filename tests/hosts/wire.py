"""A cable that delays, reorders and loses what goes through it.

`wire.py NAME SWITCH MEAN SPREAD LOSS` runs where the switch is, between the end of a host's cable
and the switch, instead of a connection. It stands in for the kernel's `netem`, which not all
kernels have. Times are in ms; each frame is late by MEAN, give or take SPREAD, so that one may
overtake others; LOSS is the share that vanishes.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import sys
import time
from contextlib import suppress
from itertools import count
from typing import Final

ALL: Final = 0x0003
OFFLOADS: Final = (263, 15)
"""`SOL_PACKET`, `PACKET_VNET_HDR`: before each frame stands what the sender left to the device."""
OUTGOING: Final = 4
MOST: Final = 1 << 17
"""Bytes of a frame: segments are not split before they leave the machine, which these never do."""
HELD: Final = 4096
"""Frames that wait in the cable at most; what does not fit is lost, as in any."""


def main(ends: tuple[str, str], mean_s: float, spread_s: float, loss: float) -> None:
    """Runs until it is killed."""
    sockets = [_open(name) for name in ends]
    other = dict(zip(sockets, reversed(sockets), strict=True))
    chance, numbers = random.Random(0), count()
    waiting: list[tuple[float, int, socket.socket, bytes]] = []
    print("ready", flush=True)
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for one in select.select(sockets, [], [], pause)[0]:
            frame, address = one.recvfrom(MOST)
            if address[2] == OUTGOING or len(waiting) >= HELD or chance.random() < loss:
                continue
            at = time.monotonic() + max(0.0, chance.uniform(mean_s - spread_s, mean_s + spread_s))
            heapq.heappush(waiting, (at, next(numbers), other[one], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            *_, way, frame = heapq.heappop(waiting)
            with suppress(OSError):  # the other end is down, or full
                way.send(frame)


def _open(name: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    end.setsockopt(*OFFLOADS, 1)
    end.bind((name, ALL))
    return end


if __name__ == "__main__":
    mean, spread, share = map(float, sys.argv[3:])
    main((sys.argv[1], sys.argv[2]), mean / 1e3, spread / 1e3, share)
