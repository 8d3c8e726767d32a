"""Options that name hosts and jobs, for every command on a live job."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Collection, Mapping
from typing import Any, Final

from frtop_tui.appearance import THEMES
from frtop_tui.connect.pipes import LAUNCHERS
from frtop_tui.errors import UsageError


def user_name(text: str) -> str:
    """The type of `--user`: a name, or a number."""
    if not 1 <= len(text) <= 64 or text.startswith("-") or not text.isprintable() or " " in text:
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is not the name of a user")
    return text


def pid_of(text: str) -> int:
    """The type of `--pid`."""
    if not text.isdecimal() or not 1 <= int(text) <= 2**22:
        raise argparse.ArgumentTypeError(f"{text!r} is not the pid of a process")
    return int(text)


CONNECTION: Final[Mapping[str, dict[str, Any]]] = {
    "--connect": {
        "nargs": "+",
        "metavar": "HOST",
        "help": "hosts with an agent: 'node[0-7]', node3:7700 (default: this host)",
    },
    "--ssh": {
        "nargs": "+",
        "metavar": "HOST",
        "help": "hosts to reach by ssh; they need no agent, key or port: 'node[0-7]', "
        f"user@node3:22, {', '.join(LAUNCHERS.values())}",
    },
    "--via": {
        "metavar": "COMMAND",
        "help": "run this instead of ssh to get a shell on a host: 'docker exec -i {host} sh'",
    },
    "--through": {
        "metavar": "HOST",
        "help": "reach the hosts of --ssh through this one, over one connection",
    },
    "--python": {
        "metavar": "PATH",
        "help": "the Python to run on hosts of --ssh (default: one that is found there)",
    },
    "--user": {
        "metavar": "NAME",
        "type": user_name,
        "help": "as root: show this user's jobs, on this host or on those of --ssh; frtop becomes"
        " that user before it reads anything",
    },
    "--job": {
        "metavar": "NAME",
        "help": "the job, by name, run id or address:port (default: the newest)",
    },
    "--pid": {
        "metavar": "PID",
        "type": pid_of,
        "help": "the job of this process, on this host",
    },
    "--read-only": {
        "action": argparse.BooleanOptionalAction,
        "help": "ask nothing of the ranks; the agents enforce it",
    },
}
"""Options that name hosts, a job, and what may be done with it."""


def explain_connection(top: argparse.ArgumentParser) -> None:
    """Adds what the live screen takes to `frtop --help`: the one place that describes it.

    Without defaults: a command without these options must not get any.
    """
    add_theme(top, argparse.SUPPRESS)
    group = top.add_argument_group("which hosts and which job (before or after the command)")
    for name, how in CONNECTION.items():
        group.add_argument(name, **how, default=argparse.SUPPRESS)


def add_connection(verb: argparse.ArgumentParser, *, without: Collection[str] = ()) -> None:
    """Adds them to a verb, whose own help only names them."""
    names = [name for name in CONNECTION if name not in without]
    group = verb.add_argument_group(
        "which hosts and which job (`frtop --help` explains)", " ".join(names)
    )
    for name in names:
        group.add_argument(name, **{**CONNECTION[name], "help": argparse.SUPPRESS})
    verb.set_defaults(settings=True)


def add_theme(verb: argparse.ArgumentParser, default: str | None = None) -> None:
    """Adds the option of verbs with a screen."""
    verb.add_argument("--theme", choices=THEMES, metavar="NAME", default=default,
                      help="auto, dark, contrast, ansi (the terminal's 16 colours) or plain"
                      " (none); default auto")  # fmt: skip
    if default is None:
        verb.set_defaults(settings=True)


def settle_hosts(options: argparse.Namespace) -> None:
    """Checks the options; if neither agents nor shells are named, this host is meant."""
    options.user = options.user or ""
    by_shell = bool(options.ssh or options.via)
    has_connect = hasattr(options, "connect")
    named = [spec for spec in getattr(options, "connect", None) or () if spec != "local"]
    if options.through and named:
        raise UsageError(
            "--through is for hosts of --ssh, and does not reach the ports of agents",
            f"--ssh {shlex.join(named)} --through {shlex.quote(options.through)} needs no agent"
            " and no port there",
        )
    if options.through and not options.ssh:
        raise UsageError("--through is for hosts of --ssh", "name them: --ssh 'node[0-7]'")
    if not has_connect:
        return
    if options.user and options.connect:
        raise UsageError(
            "--user is for this host and for hosts of --ssh: an agent with a port serves its own"
            " user",
            "leave out --connect, or name the hosts with --ssh",
        )
    if options.python and not (by_shell or options.user):
        raise UsageError("--python is for hosts of --ssh", "name them: --ssh 'node[0-7]'")
    if options.connect is None:
        options.connect = [] if by_shell or options.user else ["local"]


def refuse_files(options: argparse.Namespace) -> None:
    """Raises `UsageError` if files are named together with hosts, or in the place of hosts.

    `options` are those of the command line alone.
    """
    for name in ("connect", "ssh"):
        for spec in getattr(options, name, None) or ():
            # A folder may well be called like a host.
            # A name too long is none: `Path.exists` would raise.
            if os.path.isfile(spec) or ("/" in spec and os.path.exists(spec)):  # noqa: PTH110, PTH113
                raise UsageError(
                    f"{spec} is a file, and --{name} takes it for a host",
                    f"name either files or hosts: to read the file, leave out --{name}",
                )
    names = ("connect", "ssh", "via", "through", "user", "pid")
    given = [f"--{name}" for name in names if getattr(options, name, None)]
    if given and getattr(options, "paths", None):
        raise UsageError(
            f"name either files or hosts, not both: files were given, and {given[0]}",
            f"to read the files, leave out {given[0]}; to look at a running job, the files",
        )


def require_one_job(options: argparse.Namespace) -> None:
    """Raises `UsageError` if `--pid` does not fit the other options."""
    if getattr(options, "pid", None) is None or not hasattr(options, "connect"):
        return
    if options.job is not None:
        raise UsageError("--pid and --job both name a job", "leave out one of them")
    here = options.user and not (options.ssh or options.via)
    if options.connect != ["local"] and not here:
        given = "--connect" if options.connect else "--ssh"
        raise UsageError(
            f"--pid names a process of this host, and {given} names other hosts",
            f"run frtop on that host, or `frtop jobs {given} ...` and --job",
        )
