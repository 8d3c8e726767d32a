"""An operator's order to torch's profiler: checked, bounded, and its progress in this rank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from frtop_probe.features.profile.in_rank.torch_profiler import TorchProfiler

MAX_STEPS: Final = 100
MAX_STEP: Final = 1 << 48
MAX_SECONDS: Final = 60.0
MAX_WAIT_S: Final = 3600.0
"""Longest wait for the thread that trains to reach a step, or an op."""
LEASE_S: Final = 15.0
"""How long an order lasts without a request from its operator."""
OVERTIME_S: Final = 120.0
"""A profile by steps ends after this time at the latest."""
_TOKEN: Final = re.compile(r"[0-9a-f]{8,32}")

Stage = Literal["waiting", "running", "saving", "ready", "over"]


@dataclass(frozen=True, slots=True)
class RankOrder:
    """One order: a number of `steps`, or else of `seconds`.

    It records from `at_step` on, or from the next step on if that is 0, after `warm_up` steps.
    The operator chooses `token`: only those who know it can end the order.
    """

    token: str
    steps: int
    seconds: float
    wait_s: float
    shapes: bool
    stacks: bool
    memory: bool
    execution: bool
    """With torch's execution trace observer, which writes the input of Chakra's converter."""
    at_step: int = 0
    warm_up: int = 0

    def why_too_late(self, step: int) -> str:
        """Returns why a rank in this step cannot carry it out, or ""."""
        begin = self.at_step - self.warm_up
        if not self.at_step or step < begin:
            return ""
        return f"it is in step {step} already, and the profiler has to start at step {begin}"


def order_of(request: Mapping[str, Any]) -> RankOrder | None:
    """Returns the order in an unchecked request; None if it is malformed or asks for too much."""
    token, steps = request.get("order"), request.get("steps", 0)
    seconds, wait_s = request.get("seconds", 0.0), request.get("wait_s", 0.0)
    if not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        return None
    at_step, warm_up = request.get("at_step", 0), request.get("warm_up", 0)
    counts = ((steps, MAX_STEPS), (warm_up, MAX_STEPS), (at_step, MAX_STEP))
    if not all(type(one) is int and 0 <= one <= most for one, most in counts):
        return None
    if (at_step or warm_up) and not steps:
        return None
    if not all(type(one) in (int, float) for one in (seconds, wait_s)):
        return None
    # False for NaN.
    if not (0 <= seconds <= MAX_SECONDS and 0 < wait_s <= MAX_WAIT_S and (steps or seconds > 0)):
        return None
    switches = ("shapes", "stacks", "memory", "execution")
    options = {name: request.get(name) is True for name in switches}
    return RankOrder(
        token, steps, float(seconds), float(wait_s), at_step=at_step, warm_up=warm_up, **options
    )


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
        """Why it ends early, or ""."""
        self.discarded = ""
        """The `error` of a response if the rank drops the recording, or ""."""
        self.has_waited = False
        """Whether it has waited for ops under way at its end."""
        self.first = self.last = 0
        """The first and the last recorded step; while it warms up, `first` is yet to come."""
        self.begun = self.ended = 0.0
        """When torch's profiler was started, and stopped."""
        self.memory = 0
        """The process's size in bytes at the start."""
        self.clocks: list[tuple[int, int]] = []
        """Monotonic and wall clock in ns, at both ends."""
        self.stood_still_ns = 0
        self.trouble = ""
        """Why part of the order is not recorded, or ""."""
        self.error = self.help = ""
        self.files: dict[str, int] = {}

    @property
    def is_warming(self) -> bool:
        """Whether torch's profiler has been started, but does not record yet."""
        return self.stage == "running" and not self.clocks

    def is_due(self, now: float, *, device_ops: bool) -> bool:
        """Returns whether the recording is complete or must end early."""
        if self.ending:
            return True
        order = self.order
        if order.steps:
            # A device lags behind: its part of the last step falls into one more step.
            more = 1 if device_ops else 0
            return self.last - self.first + 1 >= order.steps + more
        return now - self.begun >= order.seconds

    def status(self, now: float) -> dict[str, Any]:
        """Returns the fields of `ProfileResponse`."""
        lasted = 0.0
        if self.clocks:
            lasted = (now if self.stage == "running" else self.ended) - self.clocks[0][0] / 1e9
        return {
            "error": self.error,
            "help": self.help or "; ".join(filter(None, (self.trouble, self.ending))),
            "stage": "warming" if self.is_warming else self.stage,
            "first": self.first,
            "last": self.last,
            "lasted_ns": round(lasted * 1e9),
            "stood_still_ns": self.stood_still_ns,
            "clocks": self.clocks[:2],
            "files": [{"name": name, "size": size} for name, size in self.files.items()],
        }
