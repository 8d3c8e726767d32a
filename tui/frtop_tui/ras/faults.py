"""Faults of NCCL's RAS that its users reported, and which versions have them.

Ranges are those of the reports and release notes, and of NCCL's public sources where these show the
fault; an end that nobody reported is open. A version that is not known may have any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RasFault:
    """One report: `since` and `fixed` bound the versions; `fixed` None: no fix is known.

    `unasked` says that it ended jobs that nobody had asked.
    """

    issue: int
    text: str
    since: Version
    fixed: Version | None
    seen: str
    unasked: bool = False

    @property
    def name(self) -> str:
        """As people search for it."""
        return f"nccl#{self.issue}"

    def is_in(self, version: Version) -> bool:
        """Whether a version may have it."""
        return not version or (
            version >= self.since and (self.fixed is None or version < self.fixed)
        )


FAULTS: Final = (
    RasFault(
        1669,
        "asking while communicators are made ends processes",
        (2, 24),
        (2, 27, 3),
        "2.26.2",
    ),
    RasFault(
        1718,
        "asking again and again ends processes, by the same race",
        (2, 24),
        (2, 27, 3),
        "2.26.5",
    ),
    RasFault(
        1762,
        "asking corrupts memory when ranks are missing, as in a job that hangs",
        (2, 26, 2),
        (2, 29, 2),
        "2.27.3, 128 GPUs",
    ),
    RasFault(
        1996,
        "RAS ends processes by itself, also when nobody asks",
        (2, 24),
        None,
        "2.27.7",
        unasked=True,
    ),
    RasFault(
        2346,
        "asking while communicators are made ends processes",
        (2, 27, 3),
        None,
        "2.29.7, 256 GPUs",
    ),
)


def parse_version(text: str) -> Version:
    """`2.28.9` as numbers; () for anything else."""
    parts = text.split(".")
    known = 2 <= len(parts) <= 4 and all(p.isascii() and p.isdecimal() for p in parts)
    return tuple(int(part[:6]) for part in parts) if known else ()


def faults_of(version: str) -> tuple[RasFault, ...]:
    """The faults that a version of NCCL has or may have; all for one that is not known."""
    return tuple(fault for fault in FAULTS if fault.is_in(parse_version(version)))


def fault_line(fault: RasFault) -> str:
    """One fault as a sentence."""
    fixed = "no fix known" if fault.fixed is None else f"fixed in {'.'.join(map(str, fault.fixed))}"
    return f"{fault.name}: {fault.text} (seen on {fault.seen}; {fixed})"
