"""Asks a rank to record something else, and for the numbers that it has sampled."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from frtop_probe import wire
from frtop_probe.agent.rank_client import NoReplyError, ReplyHead, printable, query
from frtop_probe.agent.ring_rank import RingRank

NOT_RECORDING: Final = "process {} has no process group yet, so there is nothing to sample: later"


class _ControlReply(ReplyHead, frozen=True):
    """The header of a reply to an order."""

    recorded: wire.RecordedNow = wire.RecordedNow()


class _NumbersReply(ReplyHead, frozen=True):
    """The header of a reply with samples."""

    samples: tuple[wire.NumberSample, ...] = ()
    lost: int = 0
    numbers: wire.NumberState = wire.NumberState()


_control_replies = msgspec.json.Decoder(_ControlReply)
_numbers_replies = msgspec.json.Decoder(_NumbersReply)


async def control_rank(
    host: str, rank: RingRank, request: wire.ControlRequest
) -> wire.ControlResponse:
    """Changes what a rank records, and says what it is then."""
    payload: dict[str, Any] = {"ask": "control", "note": request.note}
    if request.numbers is not None:
        payload["watch"] = msgspec.structs.asdict(request.numbers)
    if request.phases is not None:
        payload["phases"] = request.phases
    if request.sites is not None:
        payload["sites"] = request.sites
    if request.modules is not None:
        payload["modules"] = request.modules
    if request.longer:
        payload["longer"] = True
    try:
        reply, _ = await query(rank, payload, _control_replies)
    except NoReplyError as none:
        return wire.ControlResponse(request.id, host, rank.key, error=none.error, help=none.text)
    recorded = msgspec.structs.replace(reply.recorded, numbers=_printable(reply.recorded.numbers))
    text = reply.help or (NOT_RECORDING.format(rank.pid) if reply.error == "none" else "")
    return wire.ControlResponse(request.id, host, rank.key, recorded, reply.error, text)


async def read_numbers(
    host: str, rank: RingRank, request: wire.NumbersRequest
) -> wire.NumbersResponse:
    """The samples of a rank after a number, with the lines of their ops."""
    payload = {"ask": "numbers", "after": max(0, request.after)}
    try:
        reply, _ = await query(rank, payload, _numbers_replies)
    except NoReplyError as none:
        return wire.NumbersResponse(request.id, host, rank.key, error=none.error, help=none.text)
    samples = tuple(map(_printable_sample, reply.samples))
    ids = {sample.site for sample in samples if sample.site > 0}
    sites = ((number, rank.view.site(number)) for number in sorted(ids))
    words = {sample.issuer for sample in samples if sample.issuer > 0}
    issuers = ((word, rank.view.issuer(word)) for word in sorted(words))
    text = reply.help or (NOT_RECORDING.format(rank.pid) if reply.error == "none" else "")
    return wire.NumbersResponse(
        request.id,
        host,
        rank.key,
        samples,
        tuple((number, site) for number, site in sites if site is not None),
        reply.lost,
        _printable(reply.numbers),
        reply.error,
        text,
        tuple((word, issuer) for word, issuer in issuers if issuer is not None),
    )


def _printable(state: wire.NumberState) -> wire.NumberState:
    return msgspec.structs.replace(state, failure=printable(state.failure), by=printable(state.by))


def _printable_sample(sample: wire.NumberSample) -> wire.NumberSample:
    return msgspec.structs.replace(
        sample,
        kind=printable(sample.kind),
        role=printable(sample.role),
        taken=printable(sample.taken),
        dtype=printable(sample.dtype),
        checksum=printable(sample.checksum),
        error=printable(sample.error),
        parameter=printable(sample.parameter),
    )
