"""The verb `stacks`."""

from __future__ import annotations

from typing import Final

from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import rank
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command


def _stacks(verbs: Verbs[Parser]) -> None:
    stacks = verbs.add_parser(
        "stacks",
        help="print the stacks of ranks, with --native also frames of C and C++",
        description="Prints the Python stacks of all ranks as one tree, or all threads of named "
        "ranks. No rank stops for that. With --native each named rank stands still, one after the "
        "other, for about 0.7 s and at most 5 s.",
    )
    add_connection(stacks)
    stacks.add_argument("--rank", type=rank, nargs="+", metavar="N",
                        help="global ranks (default: all, merged)")  # fmt: skip
    stacks.add_argument("--native", action="store_true",
                        help="also frames of C and C++; the named ranks stand still meanwhile"
                        )  # fmt: skip
    stacks.add_argument("--yes", action="store_true",
                        help="accept that a rank stands still, and do not ask")  # fmt: skip
    stacks.add_argument("--json", action="store_true", help="print a JSON document")
    stacks.set_defaults(run=command("cli.stacks"))


VERBS: Final = (Verb(33, _stacks),)
