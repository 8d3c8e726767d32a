"""The request for the last lines that a rank and its launcher wrote."""

from __future__ import annotations

from frtop_probe.wire.declaration import RankRequest
from frtop_probe.wire.output import OutputResponse
from frtop_probe.wire.values import Int


class ReadOutput(RankRequest, frozen=True, array_like=True, tag=True):
    """Requests the end of each file that a rank and its launcher write to: at most `size` bytes.

    It shows data, so those who may only read do not get it.
    """

    answer = OutputResponse

    size: Int = 64 * 1024
