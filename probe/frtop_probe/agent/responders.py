"""Asks a rank itself, through the socket of its recorder's thread."""

from __future__ import annotations

import time

from frtop_probe import wire
from frtop_probe.agent.rank import Rank


async def tensors(host: str, rank: Rank, ask: wire.AskTensors) -> wire.TensorsAnswer:
    """What is in the tensors of a rank's pending ops, or why it cannot say, within 2 s."""
    return wire.TensorsAnswer(
        ask.id, host, rank.key, time.monotonic_ns(), error="missing", help="no responder yet"
    )


async def data(rank: Rank, ask: wire.AskData) -> wire.DataAnswer:
    """Bytes of one tensor of a pending op."""
    return wire.DataAnswer(
        ask.id, rank.key, ask.sequence, ask.index, ask.offset, 0, error="missing"
    )
