"""The row of one sample, as `frtop numbers --rows --json` prints it. Fields are only appended."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from frtop_probe import wire


class SampleRow(Struct, frozen=True, kw_only=True):
    """Figures of one tensor of one op, message or optimizer step, on one rank.

    Rows are sorted by step, op, role and rank; ops of a step by the time of their first sample.
    """

    step: int
    number: int  # of the op in its group, of a message on its rank, of a parameter in its optimizer
    kind: str
    group: str  # as on screens; "" if it is not known alike on all ranks, or there is none
    rank: int
    role: str  # as in `NumberSample`
    name: str  # of a parameter; of a DDP op, the parameter with the first NaN, or else Inf
    dtype: str
    shape: str  # "[256, 256]", "[3] x 4, [8]"
    elements: int
    nans: int
    infinities: int
    zeros: int
    subnormals: int
    minimum: float | None  # the figures are those of finite values; None: there is none
    maximum: float | None
    magnitude: float | None  # the mean of magnitudes
    norm: float | None
    checksum: str  # of the bytes that were read; "" if there are none, or of a shard
    taken: str  # "issue", "wait", "late", "backward", "step"; or "optimizer N", "scaler N"
    may_have_changed: str  # what may have changed the bytes since the op; "" if nothing may
    read_bytes: int  # the first ones of `size`
    size: int
    shard: bool  # a different part on each rank
    error: str  # why there are no figures
    peer: int | None  # rank at the other end of a message; None: any, or no message
    tag: int
    message: int  # its number in the channel: from one rank to another, in a group, with a tag
    site: wire.Site | None  # line of the program
    module: str  # that issued the op, if modules are recorded
    at_ns: int  # on the clock of the host where frtop runs, only good for comparing rows


PAGE: Final = ("Rows of `frtop numbers --rows --json`", [SampleRow])
"""Read by the generator of the field reference."""
