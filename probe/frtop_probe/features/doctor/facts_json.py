"""Facts as JSON, and back: they cross a pipe from the child, or the host, that has read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from frtop_probe.features.doctor.facts import (
    HostFacts,
    OtherRanks,
    PlaceFacts,
    ProcessRights,
    ProcFacts,
    RankFacts,
    RingFacts,
    SearchFacts,
    ToolFacts,
    TorchFiles,
    Trial,
)

_TRIALS = ("read_memory", "vm_readv", "ptrace", "kcmp", "memory_file")


def document(host: HostFacts, search: SearchFacts) -> dict[str, Any]:
    """What a host sends: values that JSON can hold."""
    return {"host": asdict(host), "search": asdict(search)}


def facts_from(data: Mapping[str, Any]) -> tuple[HostFacts, SearchFacts]:
    """Reads a `document`.

    Raises:
        KeyError: a field is missing.
        TypeError: a field is missing, or unknown.
    """
    return host_from(data["host"]), search_from(data["search"])


def host_from(data: Mapping[str, Any]) -> HostFacts:
    """Reads what JSON made of a host's facts; raises as `facts_from`."""
    tools = (ToolFacts(**{**tool, "trial": Trial(**tool["trial"])}) for tool in data["tools"])
    return HostFacts(
        **{
            **data,
            **{name: Trial(**data[name]) for name in _TRIALS},
            "rights": ProcessRights(**data["rights"]),
            "proc": ProcFacts(**data["proc"]),
            "shared_memory": PlaceFacts(**data["shared_memory"]),
            "temporary": PlaceFacts(**data["temporary"]),
            "tools": tuple(tools),
            "job_torch": _torch_from(data["job_torch"]),
            "nvml": Trial(**data["nvml"]) if data.get("nvml") else None,
        }
    )


def search_from(data: Mapping[str, Any]) -> SearchFacts:
    """Reads what JSON made of a search; raises as `facts_from`."""
    return SearchFacts(
        **{
            **data,
            "ranks": tuple(map(rank_from, data["ranks"])),
            "others": tuple(OtherRanks(**one) for one in data["others"]),
        }
    )


def rank_from(data: Mapping[str, Any]) -> RankFacts:
    """Reads what JSON made of a rank's facts; raises as `facts_from`."""
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
