"""Errors a user meets: what happened, and what to type next.

FrtopError              exit status 1
├── UsageError          2   the command line makes no sense
├── NoAgent                 nothing of frtop runs here
├── UnknownHost             a name does not resolve
├── Unreachable             a host is there, or not, but nobody answers
├── WrongKey                an agent answers and refuses our key, or is no agent
├── KeyTrouble              our own key file
├── Unreadable              a file is nothing that frtop opens, or is damaged
├── DemoFailed              the demo's job did not start
└── Missing                 something that must be installed is not
"""

from __future__ import annotations


class FrtopError(Exception):
    """A sentence about what happened, and the next step."""

    exit_status = 1

    def __init__(self, text: str, next_step: str) -> None:
        super().__init__(f"{text}\n  next: {next_step}")
        self.text = text
        self.next_step = next_step

    @property
    def sentence(self) -> str:
        """Both in one line, for the screen."""
        return f"{self.text}; {self.next_step}"


class UsageError(FrtopError):
    """The command line makes no sense."""

    exit_status = 2


class NoAgent(FrtopError):
    """Nothing of frtop runs here."""


class UnknownHost(FrtopError):
    """A host name does not resolve."""


class Unreachable(FrtopError):
    """Nobody answers at that address."""


class WrongKey(FrtopError):
    """Somebody answers, but our key is refused, or it is no agent of ours."""


class KeyTrouble(FrtopError):
    """Our own key file is missing, unreadable, or readable by others."""


class Unreadable(FrtopError):
    """A file is no capture, box, dump or stack, damaged, or in the words of a newer frtop."""


class DemoFailed(FrtopError):
    """The demo's job did not start, or ended before its fault."""


class Missing(FrtopError):
    """Something that must be installed is not."""
