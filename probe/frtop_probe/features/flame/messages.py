"""Stacks of a rank, sampled from outside."""

from __future__ import annotations

from frtop_probe.wire.declaration import RankRequest, Response
from frtop_probe.wire.values import Int, Real


class SampleResponse(Response, frozen=True, array_like=True, tag=True):
    """Sampled stacks as text, "function (file:line);...", and how often each was seen.

    `missed` counts unreadable samples. `error` is as in `StackDump`.
    """

    host: str
    key: Int
    at_ns: Int
    seconds: Real = 0.0
    rate: Int = 0
    stacks: tuple[tuple[str, Int], ...] = ()
    missed: Int = 0
    note: str = ""
    error: str = ""
    help: str = ""


class SampleStacks(RankRequest, frozen=True, array_like=True, tag=True):
    """Requests the stacks of a rank, sampled `rate` times a second for `seconds`.

    `idle`: also samples threads that wait.
    """

    answer = SampleResponse
    acts = False
    timeout_s = 40.0
    most_ranks = 64
    at_once = 3  # each costs its host some percent of a core

    seconds: Real = 10.0
    rate: Int = 100
    idle: bool = True
