"""Passes orders for torch's profiler on to a rank, and its files to the operator, in pieces.

The rank writes them beside its ring, where this process reads them: the rank itself spends no time
on their way. A piece is compressed in a thread, so neither ticks nor other requests wait for it.
"""

from __future__ import annotations

import time
import zlib
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.rank_client import NoReplyError, Reply, ask_rank
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.features.profile.files import FILES, profile_file, read_piece
from frtop_probe.proc import daemon_thread

MAX_PIECE: Final = 4 * 1024 * 1024
_LEVEL: Final = 1
"""Of zlib: a trace becomes a tenth of its size, at 100 MB a second."""
_STARTING: Final = "it is in no process group yet"
_OLD: Final = (
    "the frtop in the job is older, and does not know how to profile: start the job with this one"
)


async def profile(host: str, rank: RingRank, request: wire.ProfileRequest) -> wire.ProfileResponse:
    """Tells a rank what is ordered, and how far it is; says why when it cannot answer."""
    asked = {
        "ask": "profile",
        "action": request.action,
        "order": request.order,
        "steps": request.steps,
        "seconds": request.seconds,
        "wait": request.wait_s,
        "shapes": request.shapes,
        "stacks": request.stacks,
        "memory": request.memory,
        "devices": request.devices,
        "execution": request.execution,
    }
    reply = Reply()
    try:
        reply = await ask_rank(rank, asked)
        error, text = reply.error, reply.help
        if error == "none":
            error, text = "deadline", _STARTING  # it is asked again
        elif error == "failed" and "not understood" in text:
            error, text = "missing", _OLD
    except NoReplyError as none:
        error, text = none.error, none.text
    return wire.ProfileResponse(
        id=request.id,
        host=host,
        key=rank.key,
        at_ns=time.monotonic_ns(),
        stage=reply.stage,
        first=reply.steps[0],
        last=reply.steps[1],
        lasted_ns=reply.lasted_ns,
        stood_still_ns=reply.stood_still_ns,
        clocks=reply.clocks[:2],
        files=tuple(wire.ProfileFile(name, size) for name, size in reply.files if name in FILES),
        error=error,
        help=text,
    )


async def profile_data(rank: RingRank, request: wire.ProfileDataRequest) -> wire.Response:
    """Reads bytes of a file of a profile."""
    if request.name not in FILES or request.offset < 0:
        return wire.Error(request.id, "a profile has no such file", "failed")
    place = (request.id, rank.key, request.name, request.offset)
    path, size = profile_file(rank.ring.path, request.name), max(0, min(request.size, MAX_PIECE))

    def read() -> wire.ProfileDataResponse:
        try:
            found, total = read_piece(path, request.offset, size)
        except OSError as error:
            text = f"the profile of process {rank.pid} is not there any more ({error.strerror})"
            return wire.ProfileDataResponse(*place, 0, 0, b"", "gone", text)
        return wire.ProfileDataResponse(*place, len(found), total, zlib.compress(found, _LEVEL))

    return await daemon_thread.run(read, "frtop profile data")
