"""Facts as JSON, and back: they cross a pipe from the child, or the host, that has read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from frtop_probe.features.doctor.facts import (
    HostFacts,
    RankFacts,
    RingFacts,
    SearchFacts,
    TorchFiles,
)
from frtop_probe.proc.process_rights import ProcessRights


def document(host: HostFacts, search: SearchFacts) -> dict[str, Any]:
    """What a host sends: values that JSON can hold."""
    return {"host": asdict(host), "search": asdict(search)}


def rank_from(data: Mapping[str, Any]) -> RankFacts:
    """Reads what JSON made of a rank's facts.

    Raises:
        KeyError: a field is missing.
        TypeError: a field is missing, or unknown.
    """
    rights = data["rights"]
    return RankFacts(
        **{
            **data,
            "rights": None if rights is None else ProcessRights(**rights),
            "torch": _torch_from(data["torch"]),
            "backends": tuple(data["backends"]),
            "rings": tuple(RingFacts(**ring) for ring in data["rings"]),
        }
    )


def _torch_from(data: Mapping[str, Any] | None) -> TorchFiles | None:
    return None if data is None else TorchFiles(**data)
