"""One order in this rank, from its start to the removal of its files, as the operator hears it."""

from __future__ import annotations

from typing import Any, Final, Literal

from frtop_probe.features.profile.in_rank.order import RankOrder
from frtop_probe.features.profile.in_rank.torch_profiler import TorchProfiler

LEASE_S: Final = 15.0
"""How long an order lives on without a word from its operator."""
OVERTIME_S: Final = 120.0
"""A profile by steps ends after this time, however few they were."""

Stage = Literal["waiting", "running", "saving", "ready", "over"]


class ProfileSession:
    """Times are of the monotonic clock, in seconds."""

    def __init__(self, order: RankOrder, now: float) -> None:
        self.order = order
        self.stage: Stage = "waiting"
        self.lease = now + LEASE_S
        self.deadline = now + order.wait_s
        self.profiler: TorchProfiler | None = None
        self.thread = 0
        self.ending = ""
        """Why it ends before its time; "" while it does not."""
        self.discarded = ""
        """Why what was recorded is not kept, as the `error` of a response; "" while it is."""
        self.has_waited = False
        """For ops that were still under way when it was to end."""
        self.first = self.last = 0
        """Steps that were recorded, the first and the last."""
        self.begun = self.ended = 0.0
        self.memory = 0
        """Of the process when it began, in bytes."""
        self.clocks: list[tuple[int, int]] = []
        """Monotonic and wall clock in ns, at both ends."""
        self.stood_still_ns = 0
        self.trouble = ""
        """What was ordered and is not recorded."""
        self.error = self.help = ""
        self.files: dict[str, int] = {}

    def is_due(self, now: float, *, device_ops: bool) -> bool:
        """Whether it has recorded what was ordered, or is to end early."""
        if self.ending:
            return True
        order = self.order
        if order.steps:
            # A device is behind: with a step more its part of the last one is there as well.
            more = 1 if device_ops else 0
            return self.last - self.first + 1 >= order.steps + more
        return now - self.begun >= order.seconds

    def status(self, now: float) -> dict[str, Any]:
        """What the operator hears of it, with the fields of `ProfileResponse`."""
        lasted = (now if self.stage == "running" else self.ended) - self.begun if self.begun else 0
        return {
            "error": self.error,
            "help": self.help or "; ".join(filter(None, (self.trouble, self.ending))),
            "stage": self.stage,
            "first": self.first,
            "last": self.last,
            "lasted_ns": round(lasted * 1e9),
            "stood_still_ns": self.stood_still_ns,
            "clocks": self.clocks[:2],
            "files": [{"name": name, "size": size} for name, size in self.files.items()],
        }
