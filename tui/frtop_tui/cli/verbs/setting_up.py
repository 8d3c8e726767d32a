"""Verbs about frtop itself: its keys and its settings."""

from __future__ import annotations

from typing import Final

from frtop_tui.cli.host_options import add_connection, add_theme
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command


def _key(verbs: Verbs[Parser]) -> None:
    key = verbs.add_parser(
        "key",
        help="show and change who may look at this user's jobs",
        description="Without an action, shows our public key, whom we admit and whom we trust.",
    )
    key.set_defaults(run=command("cli.key"), act="show")
    acts = key.add_subparsers(metavar="ACTION", parser_class=Parser)
    show = acts.add_parser("show", help="show our public key, whom we admit and whom we trust")
    show.set_defaults(act="show")
    make = acts.add_parser("make", help="make our key now (otherwise the agent of rank 0 does)")
    make.set_defaults(act="make")
    admit = acts.add_parser("admit", help="let another user look at our jobs, by their public key")
    admit.add_argument("public", metavar="PUBLIC", help="their key, from `frtop key`")
    admit.add_argument("--read", action="store_true",
                       help="they may look, but not ask for tensors or native stacks")  # fmt: skip
    admit.add_argument("--name", default="", help="a name for this key, for people to read")
    admit.set_defaults(act="admit")
    trust = acts.add_parser("trust", help="look at the jobs of another user, who has admitted us")
    trust.add_argument("public", metavar="PUBLIC", help="their key, from `frtop key`")
    trust.add_argument("--name", default="", help="a name for this key, for people to read")
    trust.set_defaults(act="trust")
    remove = acts.add_parser("remove", help="no longer admit or trust this key")
    remove.add_argument("public", metavar="PUBLIC_OR_NAME")
    remove.set_defaults(act="remove")


def _config(verbs: Verbs[Parser]) -> None:
    config = verbs.add_parser(
        "config",
        help="show the settings in use, and where each comes from",
        description="Prints every setting with its value and its source: the command line, the"
        " environment, the configuration file, or frtop's default. Options that follow count as"
        " they would for the screen. docs/configuration.md describes the file.",
    )
    add_connection(config, pid=False)
    add_theme(config)
    config.add_argument("--json", action="store_true", help="print a JSON document")
    config.set_defaults(run=command("cli.config"))


VERBS: Final = (Verb(41, _key), Verb(42, _config))
