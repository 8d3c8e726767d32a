"""The verb `runs`."""

from __future__ import annotations

from typing import Final

from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command


def _runs(verbs: Verbs[Parser]) -> None:
    verb = verbs.add_parser(
        "runs",
        help="list the runs that left black boxes in a folder",
        description="Lists runs, the newest first: when each ended and how, how long it took, how"
        " far it came. `frtop open` and `frtop diff` take the word in the last column with --job."
        " Exit status 0 with runs, 1 without.",
    )
    verb.add_argument("paths", nargs="+", metavar="PATH",
                      help="the folder that `frtop run --record` names, or boxes")  # fmt: skip
    verb.add_argument("--json", action="store_true", help="print a JSON document")
    verb.set_defaults(run=command("features.runs.command"))


VERBS: Final = (Verb(25, _runs),)
