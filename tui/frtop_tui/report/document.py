"""A judged frame as JSON, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Final

import msgspec

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.job.environment import environment
from frtop_tui.job.job_activity import activity_in, known_jobs
from frtop_tui.job.model import GroupKey, HostView, Rank, Recorded
from frtop_tui.job.naming import job_call

_UNHEARD_RANK: Final[dict[str, Any]] = {
    "state": "unheard",
    "since_s": None,
    "host": None,
    "pid": None,
    "step": None,
    "blocked_on": None,
}


def document(frame: Frame) -> dict[str, Any]:
    """The object that `frtop diagnose --json` prints; keys are only ever added."""
    descriptions = {group.key: group.description for group in frame.groups}
    coverage = frame.coverage
    known = {
        "job": _job(frame),
        "other_jobs": [_other_job(job, frame) for job in frame.other_jobs],
        "recorded": _recorded(frame.recorded),
        "health": frame.health,
        "verdicts": [_verdict(verdict, descriptions) for verdict in frame.verdicts],
        "coverage": {
            "expected": coverage.expected,
            "heard": coverage.heard,
            "unheard": fold(coverage.unheard),
            "lost_updates": coverage.lost_updates,
            "complete": coverage.complete,
            "notes": [note.text for note in coverage.notes],
        },
        "notes": list(frame.notes),
        "environment": _environment(frame),
        "hosts": [_host(host) for host in frame.hosts],
        "ranks": _ranks(frame),
    }
    if frame.trace is not None:
        known["trace"] = msgspec.to_builtins(frame.trace)
    return known


def _environment(frame: Frame) -> dict[str, Any]:
    found = environment(frame.ranks.values())
    return {
        "common": dict(found.common),
        "different": {name: dict(values) for name, values in found.different.items()},
    }


def _job(frame: Frame) -> dict[str, Any] | None:
    return None if frame.job is None else _job_fields(frame.job, known_jobs(frame))


def _other_job(job: wire.Job, frame: Frame) -> dict[str, Any]:
    """A job that is not judged: whether it lives, and for how long nothing has moved in it."""
    pulse = activity_in(frame, job)
    return _job_fields(job, known_jobs(frame)) | {
        "live": job in frame.running_jobs,
        "age_s": _rounded(pulse.age_s if pulse is not None else None),
        "quiet_s": _rounded(pulse.quiet_s if pulse is not None else None),
        "waits_s": _rounded(pulse.waits_s if pulse is not None else None),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _job_fields(job: wire.Job, among: Sequence[wire.Job]) -> dict[str, Any]:
    return {
        "name": job.name,
        "run_id": job.run_id,
        "attempt": job.attempt,
        "world_size": job.world_size,
        "master": f"{job.master_addr}:{job.master_port}" if job.master_addr else "",
        "nonce": job.nonce,
        "call": job_call(job, among),
    }


def _recorded(recorded: Recorded | None) -> dict[str, Any] | None:
    if recorded is None:
        return None
    at = datetime.fromtimestamp(recorded.wall_ns / 1e9, tz=timezone.utc)
    return {
        "kind": recorded.kind,
        "path": recorded.path,
        "at": at.isoformat(timespec="seconds"),
        "by": recorded.by,
        "version": recorded.version,
        "notes": list(recorded.notes),
    }


def _host(host: HostView) -> dict[str, Any]:
    error = host.clock_error_ns
    return {
        "name": host.name,
        "state": host.state,
        "problem": str(host.problem or ""),
        "lost_updates": host.lost_updates,
        "clock_error_s": None if error is None else round(error / 1e9, 6),
    }


def _ranks(frame: Frame) -> dict[str, Any]:
    """All ranks of the job in order, those that nobody has heard included."""
    known = {rank: _rank(view, frame.now_ns) for rank, view in frame.ranks.items()}
    if frame.job is not None:
        known |= {r: dict(_UNHEARD_RANK) for r in frame.coverage.unheard if r not in known}
    return {str(rank): known[rank] for rank in sorted(known)}


def _verdict(verdict: Verdict, descriptions: dict[GroupKey, str]) -> dict[str, Any]:
    group, op = verdict.group, verdict.op
    return {
        "kind": verdict.kind,
        "confidence": verdict.confidence,
        "progress": verdict.progress,
        "culprits": list(verdict.culprits),
        "parties": [list(party) for party in verdict.parties],
        "victims": fold(verdict.victims),
        "headline": verdict.headline,
        "group": None
        if group is None
        else {
            "name": group.name,
            "description": descriptions.get(group, ""),
            "ranks": group.ranks,
        },
        "op": None if op is None else {"number": op.number, "kind": op.kind},
        "why": {
            "cause": verdict.why.cause,
            "layer": verdict.why.layer,
            "text": verdict.why.text,
        },
        "left_s": None if verdict.left_s is None else round(verdict.left_s, 1),
        "evidence": list(verdict.evidence),
        "missing": list(verdict.missing),
        "next": verdict.next,
    }


def _rank(view: Rank, now_ns: int) -> dict[str, Any]:
    blocked = view.blocked_on
    return {
        "state": view.state,
        "since_s": round(max(0.0, (now_ns - view.state_since_ns) / 1e9), 1),
        "host": view.host,
        "pid": view.identity.pid,
        "step": view.status.step if view.status is not None else None,
        "blocked_on": None
        if blocked is None
        else {
            "kind": blocked.signature.kind if blocked.signature is not None else "",
            "number": blocked.number if _is_exact(view, blocked) else None,
        },
    }


def _is_exact(view: Rank, op: wire.Op) -> bool:
    """Whether the op's number can be compared with other ranks' numbers."""
    group = view.groups.get(op.group)
    # An op that only a stack shows has no number.
    return bool(op.number) and (op.p2p or op.pseudo or group is None or group.exact)
