"""Errors a user meets: what happened, and what to type next.

FrtopError              exit status 1
├── UsageError          2   the command line is wrong
├── ConfigTrouble       2   the configuration file, a variable or a plan has a wrong setting
├── NoAgent                 no agent of frtop runs here
├── NoJob                   no distributed job was found there
├── NotOurs                 a process belongs to another user
├── UnknownHost             a host name does not resolve
├── Unreachable             no agent answers at an address
├── RemoteTrouble           a host was reached, but no agent can run or go on there
├── WrongKey                an agent refuses our key, or has a key we do not know
├── KeyTrouble              our own key file cannot be used
├── NotWritten              a file could not be written; an existing one is unchanged
├── Unreadable              a file is damaged, or of a kind that frtop does not open
├── DemoFailed              the demo's job did not start
└── Missing                 a program or package is not installed
"""

from __future__ import annotations

from typing import Final

MOST_CHARACTERS: Final = 8000
"""Characters of a text: one may repeat what was given, of any length."""


class FrtopError(Exception):
    """What happened (`text`), and what to type next (`next_step`)."""

    exit_status = 1

    def __init__(self, text: str, next_step: str) -> None:
        if len(text) > MOST_CHARACTERS:
            text = f"{text[: MOST_CHARACTERS // 2]} … {text[-MOST_CHARACTERS // 2 :]}"
        super().__init__(f"{text}\n  next: {next_step}")
        self.text = text
        self.next_step = next_step


class UsageError(FrtopError):
    """The command line is wrong."""

    exit_status = 2


class ConfigTrouble(FrtopError):
    """The configuration file, a variable or a plan has a setting that cannot be used."""

    exit_status = 2


class NoAgent(FrtopError):
    """No agent of frtop runs here."""


class NoJob(FrtopError):
    """No distributed job was found there, prepared or not."""


class NotOurs(FrtopError):
    """A named process belongs to another user."""


class UnknownHost(FrtopError):
    """A host name does not resolve."""


class Unreachable(FrtopError):
    """No agent answers at that address."""


class RemoteTrouble(FrtopError):
    """A host was reached through a shell, but no agent can run or go on there."""


class WrongKey(FrtopError):
    """An agent refuses our key, or has a key that we do not know."""


class KeyTrouble(FrtopError):
    """Our own key file is missing or unreadable, or others can read it."""


class Unreadable(FrtopError):
    """A file is damaged, or of an unknown kind or version."""


class NotWritten(FrtopError):
    """A file could not be written; an existing one is unchanged."""


class DemoFailed(FrtopError):
    """The demo's job did not start, or ended before its fault."""


class Missing(FrtopError):
    """A program or package is not installed."""
