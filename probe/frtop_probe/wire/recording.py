"""The request that changes what a rank records while it runs."""

from __future__ import annotations

from msgspec import Struct

from frtop_probe.wire.declaration import RankRequest, Response
from frtop_probe.wire.values import Int

Setting = bool | dict[str, bool | Int | str | tuple[Int, ...]]
"""A setting is on or off, or has fields whose meaning only its feature knows."""


class RecordedNow(Struct, frozen=True):
    """The settings of a rank, and how many ops and bytes its ring has.

    The ring can grow to `longer_slots` ops, for `longer_bytes` more; 0: it cannot grow.
    """

    settings: dict[str, Setting] = {}
    slots: Int = 0
    ring_bytes: Int = 0
    longer_slots: Int = 0
    longer_bytes: Int = 0


class RecordingResponse(Response, frozen=True, array_like=True, tag=True):
    """What a rank records after `ChangeRecording`; `error` and `help` as in any answer of it."""

    host: str
    key: Int
    recorded: RecordedNow = RecordedNow()
    error: str = ""
    help: str = ""


class ChangeRecording(RankRequest, frozen=True, array_like=True, tag=True):
    """Changes settings of a rank (`RankFeature.settings`); others stay as they are.

    The rank writes `note` into its ring, with the time. A ring once made `longer` stays longer.
    """

    answer = RecordingResponse
    once = True  # a note sent again would appear twice
    in_rank = True
    nothing = "process {pid} has no process group yet, so there is nothing to record: later"

    settings: dict[str, Setting] = {}  # noqa: RUF012 - msgspec copies it
    note: str = ""
    longer: bool = False
