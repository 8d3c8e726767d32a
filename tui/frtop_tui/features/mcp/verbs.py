"""The verb `mcp`."""

from __future__ import annotations

from typing import Final

from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command


def _mcp(verbs: Verbs[Parser]) -> None:
    mcp = verbs.add_parser(
        "mcp",
        help="serve agents that debug: Model Context Protocol on stdin",
        description="Serves the Model Context Protocol on standard input and output until the input"
        " ends: jobs, diagnose, explain, stacks, statistics and doctor, which only read. Each tool"
        " runs the command of its name with --json, on this host or on the hosts that are named"
        " here: a client cannot name others. Needs `pip install 'frtop[mcp]'`.",
    )
    add_connection(mcp, without=("--job", "--pid", "--read-only"))
    mcp.set_defaults(run=command("features.mcp.command"))


VERBS: Final = (Verb(53, _mcp),)
