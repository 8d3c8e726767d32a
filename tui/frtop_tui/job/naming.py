"""How to write jobs, groups, ranks and foreign texts on screens, in verdicts and in files.

Names, paths and exception texts come from programs, hosts and files that may be hostile: an
escape sequence could retitle the terminal, fill the clipboard, or hide the rest of a line. So
everything that is drawn or printed goes through `printable`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from shlex import quote
from typing import Final

from msgspec import Struct

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.job.units import counted

JobKey = tuple[str, int, int, str, int, str]
"""A `wire.Job` without its name, which may differ between ranks."""


class GroupKey(Struct, frozen=True, gc=False):
    """A group across ranks: other groups with other members may have its number or name."""

    name: str
    ranks: str  # folded
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class RankPid:
    """What `--pid` asks for: the job whose rank has this pid on this host."""

    pid: int


Wanted = str | JobKey | RankPid | None
"""Which job to show: by name, by key, or by the pid of one of its ranks; None: the newest."""
MAX_HOSTS: Final = 65_536
"""Names in a host list: ClusterShell makes a text of each, however many there are."""
_NODE: Final = re.compile(r"[\w.-]+")
_SEPARATORS: Final = re.compile(r"[,!&^\s](?![^\[]*\])")
_BALANCED: Final = re.compile(r"(?:[^\[\]]|\[[^\[\]]*\])*")
_BRACKETS: Final = re.compile(r"(\d*)\[([^\]]*)\](?=(\d*))")
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?(?:/(\d+))?")
_LONGEST: Final = 12
"""Digits of a number in a range."""
NO_RUN: Final = ("", "none")
"""Run ids that mean nothing: torchrun's default is the word "none"."""
UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"
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


def same_job(job: wire.Job | None, other: wire.Job | None) -> bool:
    """Whether both are the same job; its nonce may have become known meanwhile."""
    if job is None or other is None:
        return job is other
    return job_key(job)[:-1] == job_key(other)[:-1] and (
        job.nonce == other.nonce or not (job.nonce and other.nonce)
    )


def job_names(job: wire.Job) -> tuple[str, ...]:
    """All names of a job on the command line; `train.py#1` is its second attempt."""
    run_id = "" if job.run_id in NO_RUN else job.run_id
    names = tuple(filter(None, (job.name, run_id, job_address(job))))
    attempts = (f"{name}#{job.attempt}" for name in names)
    return (*names, *attempts, *filter(None, (job.nonce,)))


def is_called(job: wire.Job, name: str) -> bool:
    return name in job_names(job)


def job_call(job: wire.Job, jobs: Iterable[wire.Job]) -> str:
    """The first name that no other job has: what to type for exactly this job."""
    key = job_key(job)
    taken = {name for other in jobs if job_key(other) != key for name in job_names(other)}
    names = job_names(job)
    return next((name for name in names if name not in taken), names[-1] if names else "")


def typed(text: str) -> str:
    """Quotes a word for a shell if necessary."""
    return text if _PLAIN.fullmatch(text) else quote(text)


def job_title(job: wire.Job) -> str:
    """The shortest name of a job."""
    return job.name or job.run_id or job_address(job)


def job_place(job: wire.Job, *, ended: bool = False) -> str:
    """`train.py (node0:29500, attempt 1)`: distinguishes jobs with the same name."""
    title = job_title(job)
    beside = [job_address(job)] if job_address(job) not in ("", title) else []
    beside += [f"attempt {job.attempt}"] if job.attempt else []
    beside += ["ended"] if ended else []
    return f"{title} ({', '.join(beside)})" if beside else title


def job_address(job: wire.Job) -> str:
    """`node0:29500`, "" if the job has none, as after a fork."""
    return f"{job.master_addr}:{job.master_port}" if job.master_addr else ""


def listed(texts: Sequence[str], most: int = 6, joint: str = ", ") -> str:
    """`a, b and 3 more`."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{joint.join(texts[:most])}{more}"


@lru_cache(maxsize=64)
def folded_hosts(names: tuple[str, ...]) -> str:
    """`node[0-7]`. Imports ClusterShell only if there are hosts to fold."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # noqa: PLC0415

    if not all(map(_NODE.fullmatch, names)):  # a list in a name would be unfolded
        return ", ".join(names)
    folded = NodeSet(resolver=RESOLVER_NOGROUP)
    try:
        for name in names:
            folded.add(name)
    except NodeSetException:
        return ", ".join(names)
    return str(folded)


def unfolded_hosts(text: str, most: int | None = None) -> list[str]:
    """The names in a host list such as `node[0-7],gate`; the inverse of `folded_hosts`.

    Raises:
        ValueError: it is no host list, or has more than `most` names, by default `MAX_HOSTS`.
    """
    # Takes 0.1 s to import.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # noqa: PLC0415

    most = MAX_HOSTS if most is None else most
    if not _BALANCED.fullmatch(text):  # what is in it cannot be counted
        raise ValueError("its brackets do not match")
    if sum(map(_count, _SEPARATORS.split(text))) > most:
        raise ValueError(f"it has more than {most:,} names")
    try:
        return [str(node) for node in NodeSet(text, resolver=RESOLVER_NOGROUP)]
    except (NodeSetException, AssertionError) as error:  # `[0-1]9999999999` is an assertion
        raise ValueError(str(error)) from error


def _count(name: str) -> int:
    """An upper bound on the names in a folded one, without unfolding it."""
    return prod(
        sum(_range_size(before, one, after) for one in ranges.split(","))
        for before, ranges, after in _BRACKETS.findall(name)
    )


def _range_size(before: str, text: str, after: str) -> int:
    """At most so many names: for ClusterShell `1[0-27]2` is a range from 102 to 1272."""
    if (found := _RANGE.fullmatch(text.strip())) is None:
        raise ValueError(f"{text!r} is no range")  # ClusterShell may still unfold it
    if any(len(before + number + after) > _LONGEST for number in found.groups("")):
        return MAX_HOSTS + 1
    first, last = (int(before + number + after) for number in (found[1], found[2] or found[1]))
    return 1 + max(0, last - first) // max(1, int(found[3] or 1))


def group_label(name: str, description: str) -> str:
    """`default_pg`, `mesh_tp`, or `group 3` for a group without a description."""
    if description and description != "undefined":
        return description
    return f"group {name}" if name.isdigit() else name


def without_number(label: str) -> str:
    """`tp` for `tp:3`, `tp_3` or `tp[3]`; other labels, and mere numbers, stay as they are."""
    bare = label.rstrip("])}>")
    head = bare.rstrip("0123456789")
    stem = head.rstrip(":_-.#/[({< ")
    return stem if stem and head != bare else label


def folded(ranks: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0-2,4`; cuts long lists."""
    return rank_words(fold(set(ranks)), 60)


def rank_words(ranks: str, limit: int | None = None) -> str:
    """`rank 3`, or `ranks 0-2,4`, for ranks that are already folded; cuts only with a `limit`."""
    several = "-" in ranks or "," in ranks
    return f"rank{'s' if several else ''} {shortened(ranks, limit) if limit else ranks}"


def shortened(text: str, limit: int = 60) -> str:
    """Cuts folded ranks to fit a line, and says how many runs were cut."""
    if len(text) <= limit:
        return text
    parts = text.split(",")
    shown: list[str] = []
    while parts and sum(len(part) + 1 for part in shown) + len(parts[0]) < limit - 14:
        shown.append(parts.pop(0))
    return f"{','.join(shown)},… ({counted(len(parts), 'more run')})"


def printable(text: str) -> str:
    """Returns `text` as one line without anything that controls terminals.

    White space becomes a space; escapes, surrogates, direction marks and other characters
    without a glyph become `UNPRINTABLE`.
    """
    if text.isprintable():
        return text
    return "".join(map(_printable, text))


def _printable(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if letter.isspace() else UNPRINTABLE
