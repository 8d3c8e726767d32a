"""What is asked for a capture, of which host and in which order. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.dataloader_worker import children_in_question
from frtop_tui.diagnosis.model import Frame, JudgedRank

RANKS_PER_SNAPSHOT: Final = 8
OPS_PER_SNAPSHOT: Final = 32
NO_RECORDER: Final = "they have no recorder, and are seen from outside"
_UNRESPONSIVE: Final = ("silent", "stopped", "dead", "done", "unreachable")
"""Ranks that cannot respond; to ask each of them would take seconds."""

TENSOR_ERRORS: Final = {
    "none": "no pending op has tensors",
    "missing": "the recorder does not respond: it is older, could not start, or its socket file"
    " was deleted",
}
"""Errors of responses, for several ranks at once."""

Kind = str  # "stacks", "history", "gauges", "tensors"
Missing = dict[tuple[Kind, str], set[int]]
"""Ranks by what is missing of them, and why."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request to one host, and the ranks it is about."""

    kind: Kind
    ranks: tuple[int, ...]
    request: wire.Request


def plan(frame: Frame, limit: int, *, devices: bool) -> tuple[dict[str, list[Step]], Missing]:
    """The steps by host, stacks first, and what nobody has to be asked for.

    Args:
        frame: the ranks.
        limit: ops per history.
        devices: whether tensors on devices are read, too.
    """
    steps: dict[str, list[Step]] = {}
    missing: Missing = defaultdict(set)
    hosts: dict[str, list[JudgedRank]] = defaultdict(list)
    for view in frame.ranks.values():
        if view.state == "unreachable":
            missing["stacks or history", f"{view.host} is unreachable"].add(view.rank)
        else:
            hosts[view.host].append(view)
    with_gauges = {host.name for host in frame.hosts if host.gauges is not None}
    may_act = {host.name: host.may_act and not frame.read_only for host in frame.hosts}
    for name, views in hosts.items():
        without = {view.rank for view in views if not view.identity.prepared}
        if without:
            missing["tensors", NO_RECORDER] |= without
        recorded = [view for view in views if view.rank not in without]
        # Of a process that has ended nobody can read what torch has recorded.
        asked = [one for one in views if one.identity.prepared or one.exit_info is None]
        some = [*_snapshots(views), *_histories(asked, limit)]
        if name in with_gauges:
            numbers = tuple(view.rank for view in views)
            some.append(Step("gauges", numbers, wire.GaugeHistoryRequest(0)))
        if may_act.get(name, True):
            some += _tensors(recorded, missing, devices=devices)
        elif pending := {view.rank for view in recorded if view.pending}:
            why = frame.read_only or f"our key may only read on {name}"
            missing["tensors", why] |= pending
        if some:  # ranks that have ended without a recorder are asked for nothing
            steps[name] = some
    return steps, missing


def _snapshots(views: list[JudgedRank]) -> list[Step]:
    steps = []
    living = [view for view in views if view.exit_info is None]
    for start in range(0, len(living), RANKS_PER_SNAPSHOT):
        some = living[start : start + RANKS_PER_SNAPSHOT]
        request = wire.SnapshotRequest(
            0,
            keys=tuple(view.key for view in some),
            stacks=True,
            ops=OPS_PER_SNAPSHOT,
            pids=tuple(pid for view in some for pid in children_in_question(view)),
        )
        steps.append(Step("stacks", tuple(view.rank for view in some), request))
    return steps


def _histories(views: Iterable[JudgedRank], limit: int) -> list[Step]:
    return [
        Step("history", (view.rank,), wire.HistoryRequest(0, view.key, limit, columns=True))
        for view in views
    ]


def _tensors(views: Iterable[JudgedRank], missing: Missing, *, devices: bool) -> list[Step]:
    steps: list[Step] = []
    for view in views:
        if not view.pending:
            continue
        if view.state in _UNRESPONSIVE:
            missing["tensors", f"{view.state}, cannot respond"].add(view.rank)
        else:
            steps += (
                Step("tensors", (view.rank,), kind.for_capture(view.key, devices=devices))
                for kind in wire.declared()
                if issubclass(kind, wire.RankRequest) and kind.in_capture
            )
    return steps
