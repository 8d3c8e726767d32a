"""Adds lines and issuers of ops, which the ring has, to a rank's samples."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.rank_client import pass_on
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.features.tensor_checks.messages import ReadSamples, SamplesResponse


async def read_samples(host: str, request: ReadSamples, rank: RingRank) -> wire.Response:
    """Returns a rank's samples after a number."""
    request = structs.replace(request, after=max(0, request.after))
    found = await pass_on(host, request, rank)
    if not isinstance(found, SamplesResponse):
        return found
    ids = {sample.site for sample in found.samples if sample.site > 0}
    sites = ((number, rank.view.site(number)) for number in sorted(ids))
    words = {sample.issuer for sample in found.samples if sample.issuer > 0}
    issuers = ((word, rank.view.issuer(word)) for word in sorted(words))
    return structs.replace(
        found,
        sites=tuple((number, site) for number, site in sites if site is not None),
        issuers=tuple((word, issuer) for word, issuer in issuers if issuer is not None),
    )


HANDLERS: Final = {ReadSamples: read_samples}
