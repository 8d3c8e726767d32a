"""What a row of the table consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Version = tuple[int, ...]
Library = Literal["", "NCCL", "torch"]
Sure = Literal["high", "medium"]
"""high: a release note, a maintainer or a bisection; medium: several reports, or good reasons."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What a job with a fault shows: everything that is given, and something is.

    Attributes:
        line: a regular expression for a log line, an exception or a note.
        stack: one thread has a frame for each of these, which are searched in `function (file)`.
        setting: some rank has a variable of this name with a value of this form.
        differs: ranks have different values of this variable.
        ops: ranks are blocked in an op of one of these kinds, in a job of at least `world` ranks.
        uneven: hosts have different numbers of ranks.
        hangs: some verdict is on more than the end of a rank.
    """

    line: str = ""
    stack: tuple[str, ...] = ()
    setting: tuple[str, str] | None = None
    differs: str = ""
    ops: tuple[str, ...] = ()
    world: int = 0
    uneven: bool = False
    hangs: bool = False


@dataclass(frozen=True, slots=True)
class Versions:
    """Affected versions: from `first` ("": the oldest) up to `fixed`, which is not affected.

    If no `fix` is known, nothing is said of later versions.
    """

    fixed: str
    first: str = ""
    fix: bool = True

    def contain(self, version: Version) -> bool:
        return parsed(self.first) <= version < parsed(self.fixed)

    def __str__(self) -> str:
        return f"from {self.first}, before {self.fixed}" if self.first else f"before {self.fixed}"


@dataclass(frozen=True, slots=True)
class KnownFault:
    """A known fault.

    All `signs` must be there; `seen` says in words what they are. `provided` is a condition that
    frtop cannot check. `cure` is beside the newer version, or without one.
    """

    name: str
    fault: str
    signs: Signs
    seen: str
    source: str
    sure: Sure
    library: Library = ""
    versions: Versions | None = None
    provided: str = ""
    cure: str = ""
    needs_version: bool = False  # the signs are too common where the version is unknown


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a job that may be a sign of a fault.

    Texts and threads are of the ranks of verdicts; a thread's frames are `function (file)`.
    """

    torch: frozenset[str] = frozenset()  # versions as written: `2.9.0+cu128`
    nccl: frozenset[Version] = frozenset()
    texts: tuple[str, ...] = ()
    threads: tuple[tuple[str, ...], ...] = ()
    settings: Mapping[str, frozenset[str]] = field(default_factory=dict)
    differing: frozenset[str] = frozenset()
    ops: frozenset[str] = frozenset()
    world: int = 0
    uneven: bool = False
    hangs: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """A fault whose signs are there. `certain`: so is its version, and nothing is left to check."""

    fault: KnownFault
    certain: bool
    version: str  # in words: which one is affected, or what is not known of it


def parsed(version: str) -> Version:
    """`2.29.3` as numbers; "" is before all others."""
    return tuple(int(part) for part in version.split(".") if part)


BUNDLED: Final[dict[str, str]] = {
    "2.1": "2.18.1", "2.2": "2.19.3", "2.3": "2.20.5", "2.4": "2.20.5", "2.5": "2.21.5",
    "2.6": "2.21.5", "2.7": "2.26.2", "2.8": "2.27.3", "2.9": "2.27.5", "2.10": "2.27.5",
    "2.11": "2.28.9", "2.12": "2.29.7", "2.13": "2.29.7", "2.14": "2.30.7", "2.15": "2.30.7",
}  # fmt: skip
"""Which NCCL the wheels of torch for CUDA come with, by their metadata. It can be replaced."""
