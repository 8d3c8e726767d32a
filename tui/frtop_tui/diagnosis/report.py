"""A judged frame for people without a screen (text), for programs (JSON), and as one number."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Final

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.judged import Frame, Verdict
from frtop_tui.job.coverage import unheard_text
from frtop_tui.job.environment import differing, environment
from frtop_tui.job.model import GroupKey, Health, HostView, Rank, Recorded
from frtop_tui.job.naming import duration, job_call, job_title
from frtop_tui.job.printable import printable
from frtop_tui.job.pulse import known_jobs, others_text, pulse_in

HUNG = frozenset({"dead", "mismatch", "cycle"})
MAY_MOVE = frozenset({"not_entered", "stuck"})
ENOUGH = frozenset({"healthy", "ended", "starting"})
MOST_HOSTS: Final = 4
"""So many hosts that are not heard are told with their reasons."""
_QUIET: Final[dict[Health, str]] = {
    "ended": "its ranks have ended, and nobody waits for any of them",
    "unheard": "none of its ranks that may live is heard: this is the last known state",
}
"""What may be said without a verdict, other than of a healthy job."""
_UNHEARD: Final[dict[str, Any]] = {
    "state": "unheard",
    "since_s": None,
    "host": None,
    "pid": None,
    "step": None,
    "blocked_on": None,
}


def text(frame: Frame) -> list[str]:
    """The verdict as lines for a terminal; also what the copy key copies."""
    lines = [_title(frame), *recorded_lines(frame)]
    if frame.problem:
        lines.append(frame.problem)
    for verdict in frame.verdicts:
        lines += ["", *verdict_lines(verdict)]
    notes = [*frame.notes, *frame.coverage.notes]
    if frame.health == "waiting":
        lines += frame.notes
        notes = [*frame.coverage.notes]
    elif not frame.verdicts and frame.ranks:
        lines.append(_QUIET.get(frame.health, "nobody is waited for out of the ordinary"))
    if frame.ranks:  # else `problem` has said it
        notes += [*_absent_hosts(frame), *differing(environment(frame.ranks.values()))]
    tail = [f"note  {note}" for note in notes]
    if frame.job is not None and (others := others_text(frame)):
        tail.append(others)
    return [printable(line) for line in (*lines, *([""] if tail else []), *tail)]


def _absent_hosts(frame: Frame) -> list[str]:
    """Which hosts are not heard, and why; the first few of them."""
    absent = [host for host in frame.hosts if host.state != "heard"]
    told = [
        host.problem
        or (f"{host.name} is silent" if host.state == "silent" else f"{host.name}: no answer yet")
        for host in absent[:MOST_HOSTS]
    ]
    more = len(absent) - len(told)
    return [*told, f"{more} more hosts are not heard"] if more > 0 else told


def verdict_lines(verdict: Verdict) -> list[str]:
    """One verdict: headline, why, next, then what shows it."""
    sure = "" if verdict.confidence == "confirmed" else " (suspect)"
    lines = [
        f"{verdict.kind.upper().replace('_', ' ')}{sure}: {verdict.headline}",
        f"  why   {verdict.why.layer}: {verdict.why.text}",
    ]
    if verdict.kind not in ("dead", "mismatch"):
        lines.append(f"  progress  {verdict.progress}")
    if verdict.left_s is not None:
        lines.append(f"  killed by its own timeout in {duration(verdict.left_s)}")
    lines.append(f"  next  {verdict.next}")
    lines += [f"  -     {line}" for line in verdict.evidence]
    lines += [f"  not seen  {line}" for line in verdict.missing]
    return lines


def recorded_lines(frame: Frame) -> list[str]:
    """Where and when a frame was recorded, and what its files lack; nothing for a live one."""
    told = frame.recorded
    if told is None:
        return []
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told.wall_ns / 1e9))
    by = f" by {told.by}" if told.by else ""
    return [
        f"{told.kind} of {when}{by}: {told.path}; all ages are as of then",
        *(f"note  {note}" for note in told.notes),
    ]


def _title(frame: Frame) -> str:
    if frame.job is None:
        return f"frtop: {frame.health}"
    since = duration(max(0.0, (frame.until_ns - frame.since_ns) / 1e9)) if frame.since_ns else ""
    hosts = len({view.host for view in frame.ranks.values()})
    attempt = f", attempt {frame.job.attempt}" if frame.job.attempt else ""
    health = frame.health.upper() + (f" for {since}" if since else "")
    return (
        f"{job_title(frame.job)}{attempt}: {health};"
        f" {unheard_text(frame.coverage)}, {hosts} host{'s' if hosts != 1 else ''}"
    )


def exit_status(frame: Frame) -> int:
    """What `frtop diagnose` ends with; found beats partial.

    0 nothing wrong and all seen, 3 hung, dead or diverged, 4 undecided or too partial to
    say, 5 held up or slow.
    """
    verdicts = frame.verdicts
    if any(v.kind in HUNG or (v.kind in MAY_MOVE and v.progress == "none") for v in verdicts):
        return 3
    if any(v.kind in MAY_MOVE or v.kind == "slow" for v in verdicts):
        return 5
    if verdicts or not frame.coverage.complete or frame.health not in ENOUGH:
        return 4
    return 0


def document(frame: Frame) -> dict[str, Any]:
    """The frame as `frtop diagnose --json` prints it."""
    descriptions = {group.key: group.description for group in frame.groups}
    coverage = frame.coverage
    return {
        "job": _job(frame),
        "other_jobs": [_other(job, frame) for job in frame.other_jobs],
        "recorded": _recorded(frame.recorded),
        "health": frame.health,
        "verdicts": [_verdict(verdict, descriptions) for verdict in frame.verdicts],
        "coverage": {
            "expected": coverage.expected,
            "heard": coverage.heard,
            "unheard": fold(coverage.unheard),
            "lost_updates": coverage.lost_updates,
            "complete": coverage.complete,
            "notes": list(coverage.notes),
        },
        "notes": list(frame.notes),
        "environment": _environment(frame),
        "hosts": [_host(host) for host in frame.hosts],
        "ranks": _ranks(frame),
    }


def _environment(frame: Frame) -> dict[str, Any]:
    found = environment(frame.ranks.values())
    return {
        "common": dict(found.common),
        "different": {n: dict(v) for n, v in found.different.items()},
    }


def _job(frame: Frame) -> dict[str, Any] | None:
    return None if frame.job is None else _named(frame.job, known_jobs(frame))


def _other(job: wire.Job, frame: Frame) -> dict[str, Any]:
    """A job that is not judged: whether it lives, and how long nothing has moved there."""
    pulse = pulse_in(frame, job)
    return _named(job, known_jobs(frame)) | {
        "live": job in frame.running_jobs,
        "age_s": _rounded(pulse.age_s if pulse is not None else None),
        "quiet_s": _rounded(pulse.quiet_s if pulse is not None else None),
        "waits_s": _rounded(pulse.waits_s if pulse is not None else None),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _named(job: wire.Job, among: Sequence[wire.Job]) -> dict[str, Any]:
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
        "problem": host.problem,
        "lost_updates": host.lost_updates,
        "clock_error_s": None if error is None else round(error / 1e9, 6),
    }


def _ranks(frame: Frame) -> dict[str, Any]:
    """All ranks of the job in order; of those that nobody answers for we know that much."""
    known = {rank: _rank(view, frame.now_ns) for rank, view in frame.ranks.items()}
    if frame.job is not None:
        known |= {r: dict(_UNHEARD) for r in frame.coverage.unheard if r not in known}
    return {str(rank): known[rank] for rank in sorted(known)}


def _verdict(verdict: Verdict, descriptions: dict[GroupKey, str]) -> dict[str, Any]:
    group, op = verdict.group, verdict.op
    return {
        "kind": verdict.kind,
        "confidence": verdict.confidence,
        "progress": verdict.progress,
        "culprits": list(verdict.culprits),
        "parties": [list(party) for party in verdict.parties],
        "victims": verdict.victims,
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
    """Whether the op's number can be compared with those of other ranks."""
    group = view.groups.get(op.group)
    # An op that only a stack tells of has no number at all.
    return bool(op.number) and (op.p2p or op.pseudo or group is None or group.exact)
