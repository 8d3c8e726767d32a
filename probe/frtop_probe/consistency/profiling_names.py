"""Translates the Flight Recorder's names of ops into the names that users write.

An entry's name comes from its backend, such as `nccl:send 0->1`; some differ between backends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(
    r"(?:(?P<backend>[^:\s]*):)?(?P<kind>\S+)"
    r"(?:\s+(?P<own>\d+)\s*(?P<way>->|<-)\s*(?P<other>\d+|\?))?",
    re.ASCII,
)
_KINDS: Final = {
    "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "all_to_allv": "all_to_all",
    "allreduce": "all_reduce",
    "all_reduce_barrier": "barrier",
}
"""Common names of kinds that some backends name differently."""


@dataclass(frozen=True, slots=True)
class ProfilingName:
    """A parsed name, such as `nccl:send 0->1`. `own` and `other` are group ranks."""

    backend: str
    kind: str
    own: int | None = None
    other: int | None = None

    @property
    def common_kind(self) -> str:
        """The kind under a name that all backends share."""
        return _KINDS.get(self.kind.lower(), self.kind)


def parse(text: str) -> ProfilingName:
    """Parses backend and kind, and for a send or receive both group ranks."""
    found = _NAME.fullmatch(text.strip())
    if found is None:
        return ProfilingName("", text or "an op")
    if found["way"] is None:
        return ProfilingName(found["backend"] or "", found["kind"])
    other = int(found["other"]) if found["other"] != "?" else None
    return ProfilingName(found["backend"] or "", found["kind"], int(found["own"]), other)
