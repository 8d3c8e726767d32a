"""The agent's options: from the command line, else the environment, else defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from frtop_probe.agent.boxes.box_folder import box_folder

BIND: Final = "FRTOP_BIND"
PORT: Final = "FRTOP_PORT"
WITH: Final = "FRTOP_AGENT_WITH"
LINGER: Final = "FRTOP_AGENT_LINGER"
READ_ONLY: Final = "FRTOP_READ_ONLY"
UNPREPARED: Final = "FRTOP_UNPREPARED"
FOR_OPERATOR: Final = "--for-operator"
"""Of the command line: see `Options.for_operator`."""
DEFAULT_PORT: Final = 7677
PAIRS: Final = 64
"""Pairs of ports to try when the first one is taken."""
DEFAULT_LINGER: Final = 300.0
OPERATOR_LINGER: Final = 60.0
"""After the last request, of an agent that an operator's program has started."""


class OptionProblem(ValueError):
    """An invalid value; the text names the option or variable."""


@dataclass(frozen=True, slots=True)
class Options:
    """`port` is that of updates; requests use the next one.

    With `any_port`, the next free pair is taken when `port` is in use. With `with_pid`, the
    agent leaves when that process ends, else `linger` seconds after its last rank. `by_hand`
    says that a person reads its output. With `read_only`, nobody may act on ranks, whatever
    their key. `for_operator` says that an operator's program has started it: while it has had no
    prepared rank it leaves `OPERATOR_LINGER` after the last request. Without `unprepared`, ranks
    that have no recorder are not searched for. `boxes` is the folder for the black boxes of those
    that somebody watches, "" for none.
    """

    bind: str = "*"
    port: int = DEFAULT_PORT
    any_port: bool = True
    with_pid: int | None = None
    linger: float = DEFAULT_LINGER
    by_hand: bool = False
    read_only: bool = False
    for_operator: bool = False
    unprepared: bool = True
    boxes: str = ""

    @property
    def pairs(self) -> range:
        """The first ports of all pairs to try, in order."""
        last = self.port + (2 * PAIRS if self.any_port else 1)
        return range(self.port, min(last, 65535), 2)

    @classmethod
    def from_environment(
        cls,
        *,
        bind: str | None = None,
        port: int | None = None,
        with_pid: int | None = None,
        linger: float | None = None,
        by_hand: bool = True,
        read_only: bool = False,
        for_operator: bool = False,
    ) -> Options:
        """Reads the options: arguments first, then the environment, then defaults.

        Raises:
            OptionProblem: a value is out of range, or not a number.
        """
        named = _number(PORT, 1, 65534)
        chosen = port if port is not None else named
        if chosen is not None and not 1 <= chosen <= 65534:
            raise OptionProblem(f"port {chosen} is not between 1 and 65534")
        companion = with_pid if with_pid is not None else _number(WITH, 1, 2**31 - 1)
        seconds = linger if linger is not None else _number(LINGER, 0, 10**9)
        return cls(
            bind=bind or os.environ.get(BIND) or "*",
            port=int(chosen) if chosen is not None else DEFAULT_PORT,
            any_port=port is None,  # a spawned agent cannot ask for another port
            with_pid=int(companion) if companion is not None else None,
            linger=float(seconds) if seconds is not None else DEFAULT_LINGER,
            by_hand=by_hand,
            # Only "" and "0" mean no: a typing error must not grant rights.
            read_only=read_only or os.environ.get(READ_ONLY, "") not in ("", "0"),
            for_operator=for_operator,
            unprepared=os.environ.get(UNPREPARED) != "0",
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
