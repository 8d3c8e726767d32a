"""An agent's options: from the command line, else the environment, else defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from frtop_probe.agent.box_folder import box_folder

BIND: Final = "FRTOP_BIND"
PORT: Final = "FRTOP_PORT"
WITH: Final = "FRTOP_AGENT_WITH"
LINGER: Final = "FRTOP_AGENT_LINGER"
READ_ONLY: Final = "FRTOP_READ_ONLY"
UNPREPARED: Final = "FRTOP_UNPREPARED"
GAUGES: Final = "FRTOP_GAUGES"
FOR_OPERATOR: Final = "--for-operator"
"""Command-line option: see `Options.for_operator`."""
DEFAULT_PORT: Final = 7677
PAIRS: Final = 64
"""Pairs of ports to try if the first pair is taken."""
DEFAULT_LINGER: Final = 300.0
OPERATOR_LINGER: Final = 60.0
"""Seconds after the last request until an agent started by an operator leaves."""


DEFAULT_GAUGES: Final = 2.0
SHORTEST_GAUGES: Final = 1
"""A GPU's utilization is a mean over a second at most, and processor time has a hundred ticks."""
LONGEST_GAUGES: Final = 10
"""As while nobody looks; an operator takes a GPU's older figures for stale."""


class OptionProblem(ValueError):
    """An invalid value; the text names the option or variable."""


@dataclass(frozen=True, slots=True)
class Options:
    """The address of an agent, when it leaves, and what it does.

    Attributes:
        bind: the address to listen on.
        port: the port for updates; the next port is for requests. If either is in use, the next
            free pair is taken.
        with_pid: the agent leaves when this process ends; if None, `linger` after its last rank.
        linger: in seconds.
        by_hand: a person reads its output.
        read_only: nobody may act on ranks, whatever their key.
        for_operator: an operator's program started it: if it never had a prepared rank, it
            leaves `OPERATOR_LINGER` after the last request.
        unprepared: whether it searches for ranks without a recorder.
        gauges_s: seconds between two readings of the host and its GPUs, while somebody looks.
        boxes: the folder for black boxes of such ranks while somebody watches them; "" for none.
    """

    bind: str = "*"
    port: int = DEFAULT_PORT
    with_pid: int | None = None
    linger: float = DEFAULT_LINGER
    by_hand: bool = False
    read_only: bool = False
    for_operator: bool = False
    unprepared: bool = True
    gauges_s: float = DEFAULT_GAUGES
    boxes: str = ""

    @property
    def pairs(self) -> range:
        """The first ports of all pairs to try, in order."""
        return range(self.port, min(self.port + 2 * PAIRS, 65535), 2)

    @classmethod
    def from_environment(
        cls,
        *,
        bind: str = "",
        by_hand: bool = True,
        read_only: bool = False,
        for_operator: bool = False,
    ) -> Options:
        """Reads the environment; arguments override it, and it overrides defaults.

        Raises:
            OptionProblem: a value is out of range, or not a number.
        """
        companion = _number(WITH, 1, 2**31 - 1)
        linger = _number(LINGER, 0, 10**9)
        return cls(
            bind=bind or os.environ.get(BIND) or "*",
            port=int(_number(PORT, 1, 65534) or DEFAULT_PORT),
            with_pid=int(companion) if companion is not None else None,
            linger=linger if linger is not None else DEFAULT_LINGER,
            by_hand=by_hand,
            # Only "" and "0" mean no: a typo must not grant rights.
            read_only=read_only or os.environ.get(READ_ONLY, "") not in ("", "0"),
            for_operator=for_operator,
            unprepared=os.environ.get(UNPREPARED) != "0",
            gauges_s=_number(GAUGES, SHORTEST_GAUGES, LONGEST_GAUGES) or DEFAULT_GAUGES,
            boxes=box_folder(),
        )


def _number(variable: str, low: int, high: int) -> float | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise OptionProblem(f"{variable}={text} is not a number between {low} and {high}")
    return value
