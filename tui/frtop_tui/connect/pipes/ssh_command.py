"""The command that gives a shell on a host over ssh: the user's ssh, with the user's settings.

It never asks: no terminal, no password, no question about a host key. It uses a shared connection
(ControlMaster) if one is open, and leaves none behind. It adds two settings if the user has not set
them, to notice a host that is gone.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from typing import Final

from frtop_tui.connect.endpoints import PipeEndpoint
from frtop_tui.connect.pipes.framing import readable
from frtop_tui.errors import FrtopError, Missing, Unreachable, UsageError

SSH: Final = "FRTOP_SSH"
"""Environment: another ssh, or options for it: `ssh -F FILE`."""
SETTINGS_S: Final = 10.0
CONNECT_S: Final = 10
ALIVE_S: Final = 5
_ALWAYS: Final = (
    "-T", "-x", "-a",
    "-o", "BatchMode=yes",
    "-o", "ControlMaster=no",
    "-o", "ClearAllForwardings=yes",
    "-o", "PermitLocalCommand=no",
    "-o", "RemoteCommand=none",
)  # fmt: skip
_USER_ERRORS: Final = re.compile(r"configuration option|Bad owner|no argument after|line \d+")


def program() -> tuple[str, ...]:
    """The ssh to use, with the options that its user gave it.

    Raises:
        UsageError: the variable cannot be split into words.
    """
    text = os.environ.get(SSH) or "ssh"
    try:
        return tuple(shlex.split(text)) or ("ssh",)
    except ValueError as error:
        raise UsageError(f"{SSH}: {error}", f"{SSH}='ssh -F FILE'") from error


def ssh_endpoint(name: str) -> PipeEndpoint:
    """How to reach `[USER@]HOST[:PORT]`; asks ssh for its settings, which may take a moment.

    Raises:
        Missing: ssh is not installed.
        Unreachable: ssh refuses its settings.
        UsageError: `FRTOP_SSH` is malformed.
    """
    words = _words(name)
    settings = _settings(words)
    jump = settings.get("proxyjump", "none")
    return PipeEndpoint(
        host=name,
        commands=((*program(), *_ALWAYS, *_added(settings), *words, "sh"),),
        shown=f"ssh {name}",
        crowded=jump != "none" or settings.get("proxycommand", "none") != "none",
        through="" if jump == "none" or "," in jump else jump,
    )


def onward_command(name: str) -> tuple[str, ...]:
    """What a host on the way runs to reach another host, with its own ssh and settings."""
    return ("ssh", *_ALWAYS, *_added({}), *_words(name), "sh")


def jump_command(way: str, name: str) -> tuple[str, ...]:
    """The same with our ssh, which logs in on the way and on the target.

    Raises:
        UsageError: `FRTOP_SSH` is malformed.
    """
    return (*program(), *_ALWAYS, *_added({}), "-J", way, *_words(name), "sh")


def _words(name: str) -> tuple[str, ...]:
    """Port and destination as ssh takes them."""
    host, _, port = name.rpartition(":")
    if host and port.isdecimal() and ":" not in host:
        return ("-p", port, "--", host)
    return ("--", name)


def _settings(words: tuple[str, ...]) -> Mapping[str, str]:
    """What `ssh -G` prints for a host; nothing from an ssh that does not know that option."""
    command = (*program(), "-G", *words)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SETTINGS_S,
            check=False, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise _missing(command[0]) from error
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if done.returncode:
        said = readable(done.stderr.strip().rpartition(b"\n")[2])
        first = readable(done.stderr.strip().partition(b"\n")[0])
        if _USER_ERRORS.search(said + first):
            raise Unreachable(f"ssh refuses its settings: {first}", "correct that file")
        return {}
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return {key.lower(): value for key, _, value in (line.partition(" ") for line in lines)}


def _missing(ssh: str) -> FrtopError:
    return Missing(
        f"{ssh} is not installed here",
        f"install OpenSSH's client, or name another one: {SSH}=PATH; or use --via",
    )


def _added(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Options that the user has not set: on the command line, they would override the user's."""
    added: list[str] = []
    if settings.get("connecttimeout", "none") == "none":
        added += ("-o", f"ConnectTimeout={CONNECT_S}")
    if settings.get("serveraliveinterval", "0") == "0":
        added += ("-o", f"ServerAliveInterval={ALIVE_S}")
    if settings.get("loglevel", "INFO").upper() in ("QUIET", "SILENT", "FATAL"):
        added += ("-o", "LogLevel=ERROR")  # otherwise it fails silently
    return tuple(added)
