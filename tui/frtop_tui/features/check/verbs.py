"""The verb `check`."""

from __future__ import annotations

from typing import Final

from frtop_tui.cli.file_options import add_files
from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import seconds
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command

DESCRIPTION: Final = """Compares a job with a plan: world size, groups, settings, and what each step
has: ops by kind and group, their bytes and dtypes, and how long it takes. A plan is a TOML file;
--write writes one from a good run. What a plan does not mention is not checked.
"""
STATUSES: Final = """exit status of check:
  0  all expectations are held
  6  an expectation is broken
  4  none is broken, but some are not known; with --write: no steps were seen
  2  invalid command line or plan
  1  any other error
"""


def _check(verbs: Verbs[Parser]) -> None:
    verb = verbs.add_parser(
        "check",
        help="check whether a job does what a plan says",
        description=DESCRIPTION,
        epilog=STATUSES,
    )
    verb.add_argument("plan", nargs="?", metavar="PLAN",
                      help="the plan, FILE.toml; may be left out with --expect")  # fmt: skip
    add_files(verb, "*", "a capture or black boxes instead of a live job")
    verb.add_argument("--write", action="store_true",
                      help="write PLAN, from what the job does now; replaces no file")  # fmt: skip
    verb.add_argument("--expect", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
                      help="expect this, too, or instead of what the plan says of this key:"
                      " job.world-size=8 groups.mesh_tp.ranks=4"
                      " ops.mesh_dp.all_reduce.dtypes=bfloat16")  # fmt: skip
    verb.add_argument("--json", action="store_true", help="print a JSON document")
    verb.add_argument("--wait", type=seconds, default=60.0, metavar="SECONDS",
                      help="longest time to wait for the job and for its first steps"
                      " (default 60)")  # fmt: skip
    add_connection(verb)
    verb.set_defaults(run=command("features.check.command"))


VERBS: Final = (Verb(34, _check),)
