"""The watcher's lines: what it says of a job, as JSON. Keys are only ever added."""

from __future__ import annotations

from typing import Any

from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.features.watch.episodes import Decision
from frtop_tui.job.naming import job_title, printable
from frtop_tui.job.units import utc_time
from frtop_tui.text.json_document import document


def stamped(event: dict[str, Any], wall_ns: int) -> dict[str, Any]:
    """The event with its time."""
    return {"at": utc_time(wall_ns, "milliseconds"), **event}


def event_of(frame: Frame, decision: Decision) -> dict[str, Any]:
    """What was decided on a frame, with the verdict if there is one."""
    event: dict[str, Any] = {"event": decision.what, "cause": decision.cause}
    if decision.why:
        event["why"] = decision.why
    if decision.verdict is None:
        return {**about(frame), **event}
    known = document(frame)
    return {
        **event,
        "job": known["job"],
        "health": frame.health,
        "verdict": known["verdicts"][0],
        "culprits": culprits_of(frame, decision.verdict),
        "coverage": known["coverage"],
    }


def about(frame: Frame) -> dict[str, Any]:
    """Which job, without the rest of the document."""
    return {"job": document(frame)["job"], "health": frame.health}


def culprits_of(frame: Frame, verdict: Verdict) -> list[dict[str, Any]]:
    """The ranks to blame, with the places at which they run."""
    views = [frame.ranks[rank] for rank in verdict.culprits if rank in frame.ranks]
    return [
        {"rank": view.rank, "host": view.host, "pid": view.identity.pid,
         "local_rank": view.identity.local_rank}
        for view in views
    ]  # fmt: skip


def variables_of(frame: Frame, event: dict[str, Any], capture: str) -> dict[str, str]:
    """The environment of a command: the least that a line of shell needs, all printable."""
    verdict = event.get("verdict") or {}
    hosts = sorted({one["host"] for one in event.get("culprits", ())})
    values = {
        "FRTOP_EVENT": event["event"],
        "FRTOP_JOB": job_title(frame.job) if frame.job is not None else "",
        "FRTOP_KIND": verdict.get("kind", ""),
        "FRTOP_CAUSE": (verdict.get("why") or {}).get("cause", ""),
        "FRTOP_HEADLINE": verdict.get("headline", ""),
        "FRTOP_CULPRITS": ",".join(map(str, verdict.get("culprits", ()))),
        "FRTOP_HOSTS": ",".join(hosts),
        "FRTOP_CAPTURE": capture,
    }
    return {name: printable(value) for name, value in values.items()}
