"""How jobs, groups and ranks are written in text: one way, for screens and verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from shlex import quote
from typing import Final

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold

JobKey = tuple[str, int, int, str, int, str]
"""A `wire.Job` without its name, which is for people and may differ between ranks."""
_PLAIN: Final = re.compile(r"[\w@%+=:,./-][\w@%+=:,./#-]*", re.ASCII)


def job_key(job: wire.Job) -> JobKey:
    return (
        job.master_addr,
        job.master_port,
        job.world_size,
        job.run_id,
        job.attempt,
        job.nonce,
    )


def job_names(job: wire.Job) -> tuple[str, ...]:
    """Everything a person may call this job on the command line.

    `train.py#1` is its second attempt: they are counted from 0.
    """
    names = tuple(filter(None, (job.name, job.run_id, _address(job))))
    attempts = (f"{name}#{job.attempt}" for name in names)
    return (*names, *attempts, *filter(None, (job.nonce,)))


def is_called(job: wire.Job, name: str) -> bool:
    return name in job_names(job)


def job_call(job: wire.Job, jobs: Iterable[wire.Job]) -> str:
    """The first of its names that is no other job's: what to type for exactly this one."""
    key = job_key(job)
    taken = {name for other in jobs if job_key(other) != key for name in job_names(other)}
    names = job_names(job)
    return next((name for name in names if name not in taken), names[-1] if names else "")


def typed(text: str) -> str:
    """A word that a person is told to type: to a shell it is that word, whatever is in it."""
    return text if _PLAIN.fullmatch(text) else quote(text)


def job_title(job: wire.Job) -> str:
    """The shortest text that says which job this is."""
    return job.name or job.run_id or _address(job)


def job_place(job: wire.Job, *, ended: bool = False) -> str:
    """`train.py (node0:29500, attempt 1)`: tells two jobs of one name apart."""
    title = job_title(job)
    beside = [_address(job)] if _address(job) != title else []
    beside += [f"attempt {job.attempt}"] if job.attempt else []
    beside += ["ended"] if ended else []
    return f"{title} ({', '.join(beside)})" if beside else title


def _address(job: wire.Job) -> str:
    return f"{job.master_addr}:{job.master_port}" if job.master_addr else ""


def listed(texts: Sequence[str], most: int = 6, joint: str = ", ") -> str:
    """`a, b and 3 more`."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{joint.join(texts[:most])}{more}"


def group_label(name: str, description: str) -> str:
    """`default_pg`, `mesh_tp`, or `group 3` for one that nobody described."""
    if description and description != "undefined":
        return description
    return f"group {name}" if name.isdigit() else name


def folded(ranks: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0-2,4`: never a list of thousands."""
    known = set(ranks)
    text = fold(known)
    return f"rank {text}" if len(known) == 1 else f"ranks {shortened(text)}"


def shortened(text: str, limit: int = 60) -> str:
    """Folded ranks that still fit a line; the count says what was cut."""
    if len(text) <= limit:
        return text
    parts = text.split(",")
    kept: list[str] = []
    while parts and sum(len(part) + 1 for part in kept) + len(parts[0]) < limit - 14:
        kept.append(parts.pop(0))
    return f"{','.join(kept)},… ({len(parts)} more runs)"


def duration(seconds: float) -> str:
    """`3.2s`, `4m12s`, `3h12m`: as people say it, not as clocks do."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
