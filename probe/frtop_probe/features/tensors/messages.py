"""Requests about the tensors of pending ops."""

from __future__ import annotations

from frtop_probe.wire.declaration import Piece, PieceRequest, RankRequest
from frtop_probe.wire.tensors import TensorsResponse
from frtop_probe.wire.values import Int


class SummarizeTensors(RankRequest, frozen=True, array_like=True, tag=True):
    """Requests a summary of the tensors of a rank's pending op `sequence` (0: of all).

    It makes the rank work, and shows data. `devices`: a person asks, so the rank also
    reads device memory if the job was started for that.
    """

    answer = TensorsResponse
    in_rank = True
    in_capture = True
    nothing = "process {pid} has no pending op with tensors: ask ranks that have one"

    sequence: Int = 0
    devices: bool = False

    @classmethod
    def for_capture(cls, key: int, *, devices: bool) -> SummarizeTensors:
        return cls(key=key, devices=devices)


class ReadTensor(PieceRequest, frozen=True, array_like=True, tag=True):
    """Requests bytes of one tensor of a pending op.

    `index` counts the tensors of the op in the order of `TensorsResponse`.
    """

    answer = Piece
    in_rank = True

    sequence: Int = 0
    index: Int = 0
