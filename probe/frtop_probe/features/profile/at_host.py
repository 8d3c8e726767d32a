"""Passes a profile's files on to the operator, in pieces.

The rank writes them beside its ring, and this process reads them there, so sending costs the rank
no time. A thread compresses each piece, so neither ticks nor other requests wait for it.
"""

from __future__ import annotations

import zlib
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.features.profile.files import FILES, profile_file, read_piece
from frtop_probe.features.profile.messages import ReadProfile
from frtop_probe.proc import daemon_thread

MAX_PIECE: Final = 4 * 1024 * 1024
_LEVEL: Final = 1
"""zlib's level: it compresses a trace to a tenth, at 100 MB a second."""


async def read(_: str, request: ReadProfile, rank: RingRank) -> wire.Response:
    """Reads bytes of a profile's file."""
    if request.name not in FILES or request.offset < 0:
        return wire.Error(request.id, "a profile has no such file", "failed")
    path, size = profile_file(rank.ring.path, request.name), max(0, min(request.size, MAX_PIECE))
    piece = wire.Piece(request.id, rank.key, request.offset, packed=True)

    def read() -> wire.Response:
        try:
            found, total = read_piece(path, request.offset, size)
        except OSError as error:
            text = f"the profile of process {rank.pid} is no longer there ({error.strerror})"
            return structs.replace(piece, error="gone", help=text)
        data = zlib.compress(found, _LEVEL)
        return structs.replace(piece, size=len(found), total=total, data=data)

    return await daemon_thread.run(read, "frtop profile data")


HANDLERS: Final = {ReadProfile: read}
