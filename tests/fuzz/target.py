"""What a target of the fuzzer is, and the table of all.

A target takes bytes, as an enemy could send or write them, through the code that reads them and all
that is done with the result. It returns whether they were taken; False: refused with a clear error.
Whatever it raises is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_tui.errors import FrtopError
from fuzz.mutations import Mutator

CORPUS: Final = Path(__file__).with_name("corpus")
Take = Callable[[bytes], bool]
Prepare = Callable[[Path, ExitStack], Take]


@dataclass(frozen=True)
class Target:
    """One way into frtop.

    `prepare` gets a folder for its files, and a stack for what it has to end. `seeds` are real
    inputs; those of formats that may change are made, others lie in `corpus/NAME`. `most` is the
    size of the longest input in bytes; `quick` and `many` are the changed inputs that the default
    test and the long one try.
    """

    name: str
    about: str
    prepare: Prepare
    mutate: Callable[[bytes, Mutator], bytes]
    seeds: Callable[[Path], Iterable[bytes]]
    most: int
    quick: int
    many: int
    needs_torch: bool

    @property
    def folder(self) -> Path:
        return CORPUS / self.name

    def all_seeds(self, folder: Path) -> list[bytes]:
        """Seeds made now, then the kept corpus."""
        kept = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        return [*self.seeds(folder), *(path.read_bytes() for path in kept)]


TARGETS: Final[dict[str, Target]] = {}


def no_seeds(_: Path) -> Iterable[bytes]:
    """For a target whose seeds are all in the corpus."""
    return ()


def target(
    about: str,
    mutate: Callable[[bytes, Mutator], bytes],
    seeds: Callable[[Path], Iterable[bytes]] = no_seeds,
    *,
    most: int = 8192,
    quick: int = 300,
    many: int = 40_000,
    needs_torch: bool = False,
) -> Callable[[Prepare], Prepare]:
    """Adds a target to the table; its name is that of the function that prepares it."""

    def add(prepare: Prepare) -> Prepare:
        name = prepare.__name__
        TARGETS[name] = Target(name, about, prepare, mutate, seeds, most, quick, many, needs_torch)
        return prepare

    return add


def refused(error: Exception) -> bool:
    """Returns False: an input was refused. Asserts that its error says what, and what to do."""
    text = str(getattr(error, "text", error))
    assert text.strip(), "an error without a text"
    assert len(text) < 20_000, f"an error of {len(text)} characters"
    if isinstance(error, FrtopError):
        assert error.next_step.strip(), "an error without a next step"
    return False
