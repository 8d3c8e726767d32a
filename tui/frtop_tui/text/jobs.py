"""The list of all jobs as lines of text and as JSON: what `frtop jobs` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from frtop_probe.unprepared.discovery.launchers import BY_MULTIPROCESSING, LAUNCHERS
from frtop_tui.job.job_activity import activity_text
from frtop_tui.job.job_list import ListedJob, listed_jobs
from frtop_tui.job.model import BaseFrame
from frtop_tui.job.naming import job_title, listed, printable, typed
from frtop_tui.job.units import counted, duration
from frtop_tui.job.unprepared import recorder_text
from frtop_tui.text.document import aligned
from frtop_tui.text.json_document import host_fields, job_fields, seconds_of
from frtop_tui.text.notes import why_silent

WIDTH: Final = 80
_HEADS: Final = ("job", "ranks", "hosts", "state", "recorder", "--job")
_WORDS: Final = frozenset({"job", "state", "recorder", "--job"})
_LONGEST_NAME: Final = 30
MOST_ENDED: Final = 8
"""How many ended jobs to list: an agent that was killed may leave many."""
_LOOKED_FOR: Final = (
    "ranks with frtop's recorder, and processes of this user that are ranks by their"
    " environment, launcher or title"
    f" ({', '.join([*(launcher.kind for launcher in LAUNCHERS), BY_MULTIPROCESSING])})"
)
ELSEWHERE: Final[Sequence[str]] = (
    "next, if it is",
    "  not started yet  frtop run -- torchrun ...",
    "  another user's   sudo frtop --user NAME",
    "  in a container   frtop --ssh CONTAINER --via 'docker exec -i {host} sh'",
    "  on other hosts   frtop --ssh 'node[0-7]'   (at least the host of rank 0)",
)
"""What to try where no job was found."""


def jobs_lines(frame: BaseFrame, elsewhere: Sequence[str] = ELSEWHERE) -> list[str]:
    """A table with a line per job, below each what hides parts of it, then notes."""
    rows = listed_jobs(frame)
    most = sum(row.lives for row in rows) + MOST_ENDED  # living jobs are first
    rows, left_out = rows[:most], rows[most:]
    lines = _table(rows) if rows else [*_nothing_found(frame), *elsewhere]
    if left_out:
        lines.append(f"{counted(len(left_out), 'more job')} ended before: --json has all")
    beside = _beside(frame, rows)
    return [printable(line) for line in (*lines, *([""] if beside else []), *beside)]


def jobs_document(frame: BaseFrame) -> dict[str, Any]:
    """The object that `frtop jobs --json` prints; keys are only ever added."""
    rows = listed_jobs(frame)
    among = [row.job for row in rows]
    return {
        "schema": "frtop-jobs-1",
        "jobs": [
            {
                **job_fields(row.job, among),
                "live": row.lives,
                "prepared": row.prepared,
                "ranks": row.activity.ranks,
                "unprepared_ranks": row.activity.unprepared,
                "hosts": row.activity.hosts,
                **seconds_of(row.activity, "age_s", "ended_s", "quiet_s", "waits_s"),
                "dated": row.activity.dated,
                "in_the_way": list(row.in_the_way),
            }
            for row in rows
        ],
        "hosts": [{**host_fields(host), "notes": list(host.notes)} for host in frame.hosts],
        "notes": [] if rows else [note.text for note in frame.coverage.notes],
    }


def _table(rows: Sequence[ListedJob]) -> list[str]:
    facts = [_facts(row) for row in rows]
    room = WIDTH - max(map(len, aligned([_HEADS[1:-1], *facts]))) - len("  ") * 2
    # What to type gets its own line where it leaves no room for the name.
    calls = [call if len(call := typed(row.call)) <= room - 12 else "" for row in rows]
    longest = max(8, min(_LONGEST_NAME, room - max(map(len, (_HEADS[-1], *calls)))))
    cells = [
        (_cut(row.name, longest), *fact, call)
        for row, fact, call in zip(rows, facts, calls, strict=True)
    ]
    head, *table = aligned([_HEADS, *cells], _WORDS)
    lines = [head]
    for row, line, call in zip(rows, table, calls, strict=True):
        lines.append(line)
        if not call:
            lines.append(f"    --job {typed(row.call)}")
        lines += (f"    {text}" for text in row.in_the_way)
    return lines


def _facts(row: ListedJob) -> tuple[str, ...]:
    """The cells between the name and what to type."""
    seen = row.activity.ranks
    recorder = recorder_text(seen, row.activity.unprepared)
    return f"{seen}/{row.expected}", str(row.activity.hosts), _state(row), recorder


def _cut(name: str, longest: int) -> str:
    return name if len(name) <= longest else f"{name[: longest - 2]}.."


def _state(row: ListedJob) -> str:
    if row.lives:
        return f"live {duration(row.activity.age_s)}"
    ended_s = row.activity.ended_s
    return "ended" if ended_s is None else f"ended {duration(ended_s)} ago"


def _beside(frame: BaseFrame, rows: Sequence[ListedJob]) -> list[str]:
    """What does not fit the table: the meaning of "no recorder", waiting jobs, notes on hosts."""
    lines = []
    if any(row.activity.unprepared for row in rows):
        lines.append("no recorder: seen from outside (pending ops, stacks, torch's own history)")
    lines += (
        f"{job_title(row.job)} {words}"
        for row in rows
        if row.lives and (words := activity_text(row.activity)).startswith("waits")
    )
    if not rows:
        lines += (note.text for note in frame.coverage.notes)
    for host in frame.hosts:
        said = filter(None, (why_silent(host), *host.notes))
        lines += (f"{host.name}: {text}" for text in said)
    return lines


def _nothing_found(frame: BaseFrame) -> list[str]:
    reported = [host.name for host in frame.hosts if host.state == "reporting"]
    where = listed(reported, 4) or "any host"
    if searching := [host.name for host in frame.hosts if host.searching]:
        where += f" so far: the search goes on at {listed(searching, 4)}; try again"
    return [f"no job found on {where}", f"looked for: {_LOOKED_FOR}"]
