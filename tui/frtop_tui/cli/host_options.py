"""Options that name hosts and jobs, for every command on a live job."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from frtop_tui.appearance import THEMES
from frtop_tui.connect.pipes import LAUNCHERS
from frtop_tui.errors import UsageError


def add_hosts(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--connect",
        nargs="+",
        default=None,
        metavar="SPEC",
        help="hosts with an agent: 'node[0-7]', node3:7700 (default: this host)",
    )
    add_shells(verb)


def add_shells(
    verb: argparse.ArgumentParser,
    python_help: str = "the Python to run on hosts of --ssh (default: one that is found there)",
) -> None:
    """Adds the options that name hosts to be reached through a shell."""
    verb.add_argument(
        "--ssh",
        nargs="+",
        default=None,
        metavar="SPEC",
        help="hosts to reach by ssh; they need no agent, key or port: 'node[0-7]', "
        f"user@node3:22, {', '.join(LAUNCHERS.values())}",
    )
    verb.add_argument("--via", metavar="COMMAND",
                      help="run this instead of ssh to get a shell on a host: "
                      "'docker exec -i {host} sh'")  # fmt: skip
    verb.add_argument("--through", metavar="HOST",
                      help="reach the hosts of --ssh through this one, over one connection"
                      )  # fmt: skip
    verb.add_argument("--python", metavar="PATH", help=python_help)
    verb.add_argument("--user", metavar="NAME", type=user_name,
                      help="as root: show this user's jobs, on this host or on those of --ssh;"
                      " frtop becomes that user before it reads anything"
                      )  # fmt: skip
    verb.set_defaults(settings=True)


def add_connection(verb: argparse.ArgumentParser, *, pid: bool = True) -> None:
    """Adds the options that name hosts, a job, and what may be done with it."""
    add_hosts(verb)
    verb.add_argument("--job", metavar="NAME",
                      help="the job, by name, run id or address:port (default: the newest)"
                      )  # fmt: skip
    if pid:
        verb.add_argument("--pid", type=pid_of, metavar="PID",
                          help="the job of this process, on this host"
                          )  # fmt: skip
    verb.add_argument("--read-only", action=argparse.BooleanOptionalAction, default=None,
                      help="ask nothing of the ranks; the agents enforce it")  # fmt: skip


def add_theme(verb: argparse.ArgumentParser) -> None:
    """Adds the option of verbs with a screen."""
    verb.add_argument("--theme", choices=THEMES, metavar="NAME",
                      help="auto, dark, contrast, ansi (the terminal's 16 colours) or plain"
                      " (none); default auto")  # fmt: skip
    verb.set_defaults(settings=True)


def settle_hosts(options: argparse.Namespace, verbs: Sequence[str]) -> None:
    """Checks the options; if neither agents nor shells are named, this host is meant."""
    options.user = options.user or ""
    for name in ("connect", "ssh"):
        misplaced = [spec for spec in getattr(options, name, None) or () if spec in verbs]
        if misplaced:
            raise UsageError(
                f"{misplaced[0]!r} is listed among the hosts",
                f"the command comes first: frtop {misplaced[0]} --{name} ...",
            )
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


def require_one_job(options: argparse.Namespace) -> None:
    """Raises `UsageError` if `--pid` does not fit the other options."""
    if getattr(options, "pid", None) is None or not hasattr(options, "connect"):
        return
    if options.job is not None:
        raise UsageError("--pid and --job both name a job", "leave out one of them")
    if getattr(options, "paths", None):
        raise UsageError("--pid names a running job, and files were given", "use --job")
    here = options.user and not (options.ssh or options.via)
    if options.connect != ["local"] and not here:
        given = "--connect" if options.connect else "--ssh"
        raise UsageError(
            f"--pid names a process of this host, and {given} names other hosts",
            f"run frtop on that host, or `frtop jobs {given} ...` and --job",
        )


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
