"""The verbs `statistics` and `diff`."""

from __future__ import annotations

import argparse
from typing import Final

from frtop_tui.cli.file_options import add_files
from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import rank_list, seconds
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command
from frtop_tui.statistics.limits import Limit, limits_of

DIFF = """Compares two captures or black boxes, of one job or of two runs: lines whose ops are new,
gone, slower or faster by more than the noise, the time of a step, skew, and settings.
With --fail-above it also checks that the second one is not too slow.
"""
DIFF_STATUSES = """exit status of diff:
  0  no limits were given, or nothing has grown by more than its limit
  6  a figure has grown by more than its limit
  4  undecided: too few samples, or the spread is too large
  2  invalid command line
  1  any other error
"""
SORTS = ("time", "waiting", "skew", "p50", "p95", "max", "count", "bytes", "bus", "line")


def _statistics(verbs: Verbs[Parser]) -> None:
    verb = verbs.add_parser(
        "statistics",
        help="show where the time goes, and who arrives last",
        description="Counts what ranks did in the last seconds, or in captures and black boxes: ops"
        " by line, group and size, how long they took, bandwidths as nccl-tests defines them, who"
        " arrives last and by how much, and where a step goes. docs/features/statistics.md defines"
        " each figure. Exit status 0 with figures, 1 without.",
    )
    add_files(verb, "*", "captures or black boxes, or one profile, instead of a live job")
    verb.add_argument("--window", type=seconds, default=0.0, metavar="SECONDS",
                      help="count the last SECONDS, as far as rings reach back (default: 60;"
                      " of files everything)")  # fmt: skip
    verb.add_argument("--rank", type=rank_list, metavar="LIST",
                      help="count only the ops of these ranks: 0-3,8")  # fmt: skip
    verb.add_argument("--group", metavar="LIST",
                      help="count only the ops of these groups, by name or description: dp:0,tp:1"
                      )  # fmt: skip
    verb.add_argument("--by", choices=("line", "module", "memory"),
                      help="line: a row per line; module: a tree by the module and phase that"
                      " issued ops, if modules are recorded; memory: torch's allocator by rank"
                      " and device, of a profile with --memory (default: line; module for"
                      " a profile)")  # fmt: skip
    verb.add_argument("--level", type=int, choices=range(4), metavar="0-3",
                      help="with --by module, the levels of CommDebugMode: 0 collectives, 1 also"
                      " parameters and ops on DTensors, 2 also ops that are not trivial, 3 all"
                      " ops; 1 to 3 need a file of `frtop profile` (default: 0; 1 for a profile)"
                      )  # fmt: skip
    verb.add_argument("--sort", choices=SORTS, default="time", metavar="FIGURE",
                      help="sort by FIGURE, largest first, or by line (default: time): "
                      + ", ".join(SORTS)
                      )  # fmt: skip
    verb.add_argument("--json", action="store_true", help="print a JSON document")
    verb.add_argument("--wait", type=seconds, default=10.0, metavar="SECONDS",
                      help="longest time to wait for the job (default 10)")  # fmt: skip
    add_connection(verb)
    verb.set_defaults(run=command("features.statistics.command"))


def _diff(verbs: Verbs[Parser]) -> None:
    diff = verbs.add_parser(
        "diff",
        help="show what changed between two captures",
        description=DIFF,
        epilog=DIFF_STATUSES,
    )
    diff.add_argument("a", metavar="BEFORE", help="a capture or black boxes")
    diff.add_argument("b", metavar="AFTER", help="the same, of a later time or another run")
    diff.add_argument("--job", metavar="NAME", action="append",
                      help="name, run id or address:port; twice: of BEFORE, then of AFTER,"
                      " as `frtop runs` names them")  # fmt: skip
    diff.add_argument("--fail-above", type=_limits, metavar="LIMITS",
                      help="check that no figure has grown by more than a share, a time or both,"
                      " as in step=5%%,skew=10%%+1ms: step, data, forward, backward, optimizer,"
                      " communication, own; skew and transfer of each line")  # fmt: skip
    diff.add_argument("--json", action="store_true", help="print a JSON document")
    diff.set_defaults(run=command("features.statistics.command", "run_diff"))


def _limits(text: str) -> tuple[Limit, ...]:
    """How much slower each figure of a run may be."""
    try:
        return limits_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


VERBS: Final = (Verb(30, _statistics), Verb(31, _diff))
