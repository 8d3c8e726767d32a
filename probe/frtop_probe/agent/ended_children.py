"""Children of a rank that are gone: a killed worker that its parent reaped leaves nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_probe.proc import processes

LIVED_NS: Final = 5_000_000_000
"""Who lived for less was no worker, but a command that the program ran."""
_NAMED_NS: Final = 1_000_000_000
"""By then a worker has given itself a name."""
_MOST: Final = 8
_MOST_FOLLOWED: Final = 512


@dataclass(slots=True)
class _Child:
    start_ticks: int
    name: str
    seen_ns: int
    named: bool = False


class EndedChildren:
    """Follows the children of a rank's main thread from one tick to the next."""

    def __init__(self) -> None:
        self._living: dict[int, _Child] = {}
        self._ended: deque[wire.EndedChild] = deque(maxlen=_MOST)

    def newest(self) -> tuple[wire.EndedChild, ...]:
        """Those that ended last, the oldest first."""
        return tuple(self._ended)

    def update(self, pids: Sequence[int], now_ns: int) -> None:
        """Takes in the children that there are now."""
        for pid in self._living.keys() - set(pids):
            child = self._living.pop(pid)
            found = processes.read_stat(pid)
            is_gone = found is None or found.start_ticks != child.start_ticks or found.state in "ZX"
            if is_gone and now_ns - child.seen_ns >= LIVED_NS:
                self._ended.append(wire.EndedChild(pid, child.name, now_ns))
        for pid in pids[:_MOST_FOLLOWED]:
            known = self._living.get(pid)
            if known is not None and (known.named or now_ns - known.seen_ns < _NAMED_NS):
                continue
            found = processes.read_stat(pid) if processes.is_own(pid) else None
            if found is None or (known is None and found.state in "ZX"):
                continue
            seen_ns = now_ns if known is None else known.seen_ns
            self._living[pid] = _Child(found.start_ticks, found.name, seen_ns, known is not None)
