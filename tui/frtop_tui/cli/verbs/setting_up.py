"""Verbs about frtop itself: what is in its way, whose keys it takes, which settings it uses."""

from __future__ import annotations

from frtop_tui.cli.host_options import add_connection, add_shells, add_theme, pid_of
from frtop_tui.cli.verbs.parts import Parser, Verbs, command


def add(verbs: Verbs[Parser]) -> None:
    """Adds `doctor`, `key` and `config`."""
    _doctor(verbs)
    _key(verbs)
    _config(verbs)


def _doctor(verbs: Verbs[Parser]) -> None:
    doctor = verbs.add_parser(
        "doctor",
        help="what would be seen of a job here, and which change opens what is closed",
        description="Tries, tier by tier, what can be seen of a job on this host: before a job, or"
        " beside the ranks that run. Ranks are only read, as by every look; whatever else is tried"
        " is tried on a process of its own. With --ssh the same on other hosts, through a shell,"
        " with nothing installed there. Exit status 0, or 1 where something is closed that costs"
        " evidence, or a host is not reached.",
    )
    add_shells(doctor, python_help="for a job that is yet to start with this Python, whatever runs"
               " here; with --ssh: the Python to use there")  # fmt: skip
    doctor.add_argument("--pid", type=pid_of, metavar="PID",
                        help="only this process of this host (default: all ranks of this user)"
                        )  # fmt: skip
    doctor.add_argument("--json", action="store_true", help="print a JSON document")
    doctor.set_defaults(run=command("doctor.command"))


def _key(verbs: Verbs[Parser]) -> None:
    key = verbs.add_parser(
        "key",
        help="who may look at this user's jobs: show, make, admit, trust, remove",
        description="Without an action: shows our public key, whom we admit and whom we trust.",
    )
    key.set_defaults(run=command("key"), act="show")
    acts = key.add_subparsers(metavar="ACTION", parser_class=Parser)
    show = acts.add_parser("show", help="our public key, whom we admit, whom we trust")
    show.set_defaults(act="show")
    make = acts.add_parser("make", help="make our key now (otherwise the agent of rank 0 does)")
    make.set_defaults(act="make")
    admit = acts.add_parser("admit", help="let another user look at our jobs, by their public key")
    admit.add_argument("public", metavar="PUBLIC", help="their key, from `frtop key`")
    admit.add_argument("--read", action="store_true",
                       help="they may look, but not ask for tensors or native stacks")  # fmt: skip
    admit.add_argument("--name", default="", help="who that is, for people")
    admit.set_defaults(act="admit")
    trust = acts.add_parser("trust", help="look at the jobs of another user, who has admitted us")
    trust.add_argument("public", metavar="PUBLIC", help="their key, from `frtop key`")
    trust.add_argument("--name", default="", help="who that is, for people")
    trust.set_defaults(act="trust")
    remove = acts.add_parser("remove", help="no longer admit or trust this key")
    remove.add_argument("public", metavar="PUBLIC_OR_NAME")
    remove.set_defaults(act="remove")


def _config(verbs: Verbs[Parser]) -> None:
    config = verbs.add_parser(
        "config",
        help="the settings in use, and where each comes from",
        description="Prints every setting with its value and where that comes from: the command"
        " line, the environment, the configuration file, or frtop itself. Options that follow are"
        " taken as the screen would take them. docs/configuration.md describes the file.",
    )
    add_connection(config, pid=False)
    add_theme(config)
    config.add_argument("--json", action="store_true", help="print a JSON document")
    config.set_defaults(run=command("config"))
