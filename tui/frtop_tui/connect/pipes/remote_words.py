"""What the other end of a pipe says of itself, in JSON: `boot`, `hello`, `error`, `ended`.

It is checked against its type, bounded, and shown without control sequences: another machine
wrote it.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from frtop_tui.connect.pipes.framing import PipeError
from frtop_tui.job.naming import printable

MAX_BYTES: Final = 64 * 1024
MAX_WORDS: Final = 600
"""Characters of a sentence of the other end."""


class Boot(Struct, frozen=True):
    """A Python was found, and waits for the archive. `task` is Slurm's, "" without."""

    python: str = ""
    machine: str = ""
    host: str = ""
    task: str = ""


class Words(Struct, frozen=True):
    """Something that went wrong there, and what to do about it."""

    text: str = ""
    next: str = ""

    def clean(self) -> Words:
        """The same, bounded and printable."""
        return Words(printable(self.text)[:MAX_WORDS], printable(self.next)[:MAX_WORDS])


class Ended(Struct, frozen=True):
    """How the command for this host ended on the host on the way."""

    status: int = 0
    errors: tuple[str, ...] = ()

    def clean(self) -> tuple[str, ...]:
        """Its last lines on stderr, bounded and printable."""
        return tuple(printable(line)[:MAX_WORDS] for line in self.errors[-20:])


class Hello(Struct, frozen=True):
    """The agent runs. `place` names the host and its pids' namespace, "" where not known.

    `examines`: it is no agent, but the doctor.
    """

    instance: str = ""
    version: str = ""
    python: str = ""
    machine: str = ""
    host: str = ""
    pid: int = 0
    uid: int = -1
    place: str = ""
    has_py_spy: bool = True
    examines: bool = False
    problems: tuple[Words, ...] = ()


Said = TypeVar("Said", Boot, Words, Ended, Hello)


def read(text: bytes, kind: type[Said]) -> Said:
    """Decodes one of the above; raises `PipeError` for anything else."""
    if len(text) > MAX_BYTES:
        raise PipeError(f"no {kind.__name__.lower()}: {len(text)} bytes")
    try:
        return msgspec.json.decode(text or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PipeError(f"no {kind.__name__.lower()}: {error}") from error
