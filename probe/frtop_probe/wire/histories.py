"""All ops that a rank's ring still has, as rows or as columns."""

from __future__ import annotations

from typing import Final

from frtop_probe.wire.ops import Issuer, Signature, Site
from frtop_probe.wire.values import Int, Value

UNTIMED: Final = 256
"""Flag of a row: `took_ns` only says that the op is over, not how long it took."""


class HistoryColumn(Value, frozen=True, gc=True, weakref=True):
    """One field of consecutive rows: the `first` value, then the differences between rows.

    Each difference has `width` bytes (1, 2, 4 or 8), little-endian, signed; 0: all values equal.
    """

    first: Int
    width: Int = 0
    differences: bytes = b""


class HistoryColumns(Value, frozen=True):
    """The ops of a `History` by field. `sequence` has one difference fewer than there are ops.

    `signature`, `site` and `issuer` are indices into the history's tables, from 1; 0 is none.

    `took_ns` is 0 while pending, and negative if the op failed after that time. `flags` are those
    of a ring slot (`ring.layout.Flag`), plus `UNTIMED`. `waited_ns` is how long before its end the
    issuing thread began to wait for it; 0: it did not wait, or no wait was seen.
    """

    sequence: HistoryColumn
    group: HistoryColumn
    number: HistoryColumn
    signature: HistoryColumn
    site: HistoryColumn
    issued_ns: HistoryColumn
    took_ns: HistoryColumn
    thread: HistoryColumn
    flags: HistoryColumn
    pseudo: HistoryColumn
    timeout_ms: HistoryColumn
    issuer: HistoryColumn = HistoryColumn(0)
    waited_ns: HistoryColumn = HistoryColumn(0)


class Mark(Value, frozen=True):
    """Something other than an op that a rank did, from `begin_ns` to `end_ns` (may be equal).

    `end_ns` is 0 while it lasts.
    `kind` is one of "step", which ends at `end_ns`, "fetch", "forward", "backward", "optimizer",
    "note". `number` is the step's; `samples` is what the job reported for it, 0 for nothing.
    """

    kind: str
    begin_ns: Int
    end_ns: Int
    number: Int = 0
    text: str = ""
    samples: Int = 0


class History(Value, frozen=True):
    """All ops that a rank's ring still has, oldest first. `columns` is None if there are none.

    Signatures, sites and issuers are sent once.
    """

    signatures: tuple[Signature, ...] = ()
    sites: tuple[Site, ...] = ()
    columns: HistoryColumns | None = None
    lost: Int = 0  # ops in between that cannot be read
    note: str = ""  # where ops come from, and what is unknown about them; "": a recorder's ring
    marks: tuple[Mark, ...] = ()  # from the same time as the ops, oldest first
    issuers: tuple[Issuer, ...] = ()
