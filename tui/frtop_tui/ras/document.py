"""An answer of NCCL's RAS as a JSON document: `frtop ras --json`."""

from __future__ import annotations

from typing import Any

from msgspec import structs, to_builtins

from frtop_probe import wire
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.ras.faults import faults_of
from frtop_tui.ras.launches import counts_by_kind, moved
from frtop_tui.ras.membership import Membership, memberships
from frtop_tui.ras.text import NOT_COVERED


def ras_document(
    frame: BaseFrame,
    rank: Rank,
    response: wire.RasResponse,
    earlier: wire.RasResponse | None = None,
) -> dict[str, Any]:
    """The answer with what was made of it; `report` is the answer in its own terms."""
    report = response.report
    changes = None
    if report is not None and earlier is not None and earlier.report is not None:
        changes = moved(earlier.report, report)
    found = memberships(frame, response)
    communicators = report.communicators if report is not None else ()
    return {
        "rank": rank.rank,
        "host": rank.host,
        "pid": rank.identity.pid,
        "asked": response.asked,
        "error": response.error,
        "help": response.help,
        "nccl": {
            "version": response.version or None,
            "source": response.version_source,
            "library": response.library,
            "faults": [fault.name for fault in faults_of(response.version)],
        },
        "address": response.address,
        "checked": list(response.checked),
        "unchecked": list(response.unchecked),
        "communicators": [
            _communicator(one, members, changes)
            for one, members in zip(communicators, found, strict=True)
        ],
        "not_covered": list(NOT_COVERED),
        "report": to_builtins(_maps(report)) if report is not None else None,
        "seconds_since_earlier": (
            (response.at_ns - earlier.at_ns) / 1e9 if earlier is not None else None
        ),
    }


def _communicator(
    one: wire.RasCommunicator,
    members: Membership,
    changes: dict[tuple[str, str], frozenset[int]] | None,
) -> dict[str, Any]:
    changed = None if changes is None else changes.get((one.hash, one.secondary_hash))
    return {
        "hash": one.hash,
        "size": one.size,
        "ranks": list(members.ranks),
        "groups": list(members.groups),
        "ambiguous": len(members.groups) > 1 or members.twins > 1,
        "counts": {
            row.kind: {"most": row.most, "fewer": {str(rank): count for rank, count in row.fewer}}
            for row in counts_by_kind(one)
        },
        "missing": [rank.rank for rank in one.missing],
        "not_moved": (
            None
            if changed is None
            else [rank.rank for rank in one.ranks if rank.rank not in changed]
        ),
    }


def _maps(value: Any) -> Any:
    """Structs as maps: on the wire they are arrays."""
    if hasattr(value, "__struct_fields__"):
        return {name: _maps(inner) for name, inner in structs.asdict(value).items()}
    if isinstance(value, tuple):
        return [_maps(inner) for inner in value]
    return value
