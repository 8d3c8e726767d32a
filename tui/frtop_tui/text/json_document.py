"""A judged frame as JSON, for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.cases.slow.detect import compared
from frtop_tui.diagnosis.graph.wait_node import number_of
from frtop_tui.diagnosis.model import Frame, Slowness, Verdict
from frtop_tui.job.environment import environment
from frtop_tui.job.issuer_words import issuer_fields
from frtop_tui.job.job_activity import activity_in, known_jobs
from frtop_tui.job.model import HostView, JobActivity, Rank, Recorded
from frtop_tui.job.naming import GroupKey, job_address, job_call
from frtop_tui.job.units import utc_time
from frtop_tui.job.unprepared import all_prepared
from frtop_tui.text.reported_words import reported_document

_UNREACHABLE_RANK: Final[dict[str, Any]] = {
    "state": "unreachable",
    **dict.fromkeys(
        ("since_s", "host", "pid", "prepared", "notes", "transports", "step", "blocked_on")
    ),
}


def document(frame: Frame) -> dict[str, Any]:
    """The object that `frtop diagnose --json` prints; keys are only ever added."""
    descriptions = {group.key: group.description for group in frame.groups}
    coverage = frame.coverage
    known = {
        "schema": "frtop-diagnose-1",
        "job": _shown_job(frame),
        "other_jobs": [_other_job(job, frame) for job in frame.other_jobs],
        "recorded": _recorded(frame.recorded),
        "health": frame.health,
        "verdicts": [verdict_fields(verdict, descriptions) for verdict in frame.verdicts],
        "coverage": {
            "expected": coverage.expected,
            "reporting": coverage.reporting,
            "unreachable": fold(coverage.unreachable),
            "lost_updates": coverage.lost_updates,
            "complete": coverage.complete,
            "notes": [note.text for note in coverage.notes],
        },
        "notes": list(frame.notes),
        **_compared(frame),
        "environment": _settings(frame.ranks.values()),
        "hosts": [host_fields(host) for host in frame.hosts],
        "ranks": _ranks(frame),
        "reported": reported_document(frame.ranks),
    }
    if frame.trace is not None:
        known["trace"] = msgspec.to_builtins(frame.trace)
    return known


def _settings(ranks: Iterable[Rank]) -> dict[str, Any]:
    """Empty if no rank's settings are known: without them, "no difference" means nothing."""
    found = environment(ranks)
    if not (found.common or found.different):
        return {}
    return {
        "common": dict(found.common),
        "different": {name: dict(values) for name, values in found.different.items()},
    }


def _shown_job(frame: Frame) -> dict[str, Any] | None:
    if frame.job is None:
        return None
    prepared = all_prepared(len(frame.ranks), len(frame.coverage.unprepared))
    return {**job_fields(frame.job, known_jobs(frame)), "prepared": prepared}


def _other_job(job: wire.Job, frame: Frame) -> dict[str, Any]:
    """A job without a verdict: whether it lives, and when something last moved in it."""
    activity = activity_in(frame, job)
    known = all_prepared(activity.ranks, activity.unprepared) if activity is not None else None
    return {
        **job_fields(job, known_jobs(frame)),
        "live": job in frame.running_jobs,
        "prepared": known,
        **seconds_of(activity, "age_s", "quiet_s", "waits_s"),
        "dated": activity is None or activity.dated,
    }


def rounded(seconds: float | None) -> float | None:
    """To a tenth of a second."""
    return None if seconds is None else round(seconds, 1)


def seconds_of(activity: JobActivity | None, *names: str) -> dict[str, float | None]:
    return {name: rounded(getattr(activity, name, None)) for name in names}


def job_fields(job: wire.Job, among: Sequence[wire.Job]) -> dict[str, Any]:
    """What identifies a job; `call` is what to type for it."""
    return {
        "name": job.name,
        "run_id": job.run_id,
        "attempt": job.attempt,
        "world_size": job.world_size,
        "master": job_address(job),
        "nonce": job.nonce,
        "call": job_call(job, among),
    }


def _recorded(recorded: Recorded | None) -> dict[str, Any] | None:
    if recorded is None:
        return None
    return {
        "kind": recorded.kind,
        "path": recorded.path,
        "at": utc_time(recorded.wall_ns) if recorded.wall_ns else None,
        "by": recorded.by,
        "version": recorded.version,
        "notes": list(recorded.notes),
    }


def host_fields(host: HostView) -> dict[str, Any]:
    """Whether a host reports."""
    error = host.clock_error_ns
    return {
        "name": host.name,
        "state": host.state,
        "problem": str(host.problem or ""),
        "lost_updates": host.lost_updates,
        "clock_error_s": None if error is None else round(error / 1e9, 6),
    }


def _ranks(frame: Frame) -> dict[str, Any]:
    """All ranks of the job in order, with those that never reported."""
    known = {rank: _rank(view, frame.now_ns) for rank, view in frame.ranks.items()}
    if frame.job is not None:
        known |= {r: dict(_UNREACHABLE_RANK) for r in frame.coverage.unreachable if r not in known}
    return {str(rank): known[rank] for rank in sorted(known)}


def verdict_fields(verdict: Verdict, descriptions: dict[GroupKey, str]) -> dict[str, Any]:
    """One verdict; `descriptions` of groups by their keys."""
    group, op = verdict.group, verdict.op
    return {
        "kind": verdict.kind,
        "confidence": verdict.confidence,
        "progress": verdict.progress,
        "culprits": list(verdict.culprits),
        "parties": [list(party) for party in verdict.parties],
        "victims": fold(verdict.victims),
        "headline": verdict.headline,
        "group": group
        and {
            "name": group.name,
            "description": descriptions.get(group, ""),
            "ranks": group.ranks,
        },
        "op": op and {"number": op.number, "kind": op.kind, **issuer_fields(verdict.issuer)},
        "why": msgspec.to_builtins(verdict.why),
        "left_s": rounded(verdict.left_s),
        "evidence": list(verdict.evidence),
        "missing": list(verdict.missing),
        "next": verdict.next,
        **({} if verdict.slow is None else {"slow": _slowness(verdict.slow)}),
    }


def _compared(frame: Frame) -> dict[str, Any]:
    """How well stragglers would show; `visible_share` is null if they would not."""
    found = compared(frame)
    return {
        "compared_s": rounded(found.ns / 1e9),
        "visible_share": round(found.share, 4) if found.ns else None,
        "compared_one_op_in": found.stride,
        "not_compared": fold(found.left_out),
    }


def _slowness(slow: Slowness) -> dict[str, Any]:
    """How slow a rank is, in seconds."""
    return {
        "late_ops": slow.late,
        "sampled_ops": slow.sampled,
        "late_s": round(slow.late_ns / 1e9, 6),
        "clock_error_s": round(slow.error_ns / 1e9, 6),
        "share": round(slow.share, 4),
        "most_share": round(slow.most_share or slow.share, 4),
        "step_s": None if slow.step_ns is None else round(slow.step_ns / 1e9, 6),
        "waiting_ranks": slow.waiting,
        "lost_hours": round(slow.lost_ns / 3.6e12, 4),
        "hours_of": "GPU" if slow.on_gpus else "rank",
        "at_least": slow.at_least,
    }


def _rank(view: Rank, now_ns: int) -> dict[str, Any]:
    blocked = view.blocked_on
    return {
        "state": view.state,
        "since_s": rounded(view.state_age_s(now_ns)),
        "host": view.host,
        "pid": view.identity.pid,
        "prepared": view.identity.prepared,
        "notes": list(view.notes),
        "transports": [{"name": one.name, "sign": one.sign} for one in view.transports],
        "step": view.status.step if view.status is not None else None,
        "blocked_on": blocked
        and {
            "kind": blocked.signature.kind if blocked.signature is not None else "",
            "number": _number(blocked, view.groups.get(blocked.group)),
            "age_s": rounded(view.age_s(blocked.issued_ns, now_ns)) if blocked.issued_ns else None,
            "dated": blocked.dated,
            **issuer_fields(blocked.issuer),
        },
    }


def _number(op: wire.Op, group: wire.Group | None) -> int | None:
    """The number in its group; messages and calls outside of groups have one in their rank."""
    return (op.number if op.p2p or op.pseudo else number_of(op, group)) or None
