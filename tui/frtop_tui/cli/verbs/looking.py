"""Verbs that show a job or write it to a file: screen, verdict, files, the list of jobs."""

from __future__ import annotations

import argparse
from typing import Final

from frtop_tui.cli.file_options import add_capture, add_export, add_files
from frtop_tui.cli.host_options import add_connection, add_hosts, add_theme
from frtop_tui.cli.option_values import seconds
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command

SCREEN: Final = "screen"
STATUSES: Final = """exit status of diagnose:
  0  healthy, and all ranks reported
  3  hung, dead or diverged (collective mismatch)
  5  held up or slow
  4  undecided: it is not known yet whether a wait is unusual, a straggler
     is only suspected, or too few ranks reported
  2  invalid command line
  1  any other error
"""


def _screen(verbs: Verbs[Parser]) -> None:
    screen = verbs.add_parser(SCREEN, help="the live screen (the default command)")
    add_connection(screen)
    add_theme(screen)
    screen.set_defaults(run=command("cli.screen"))


def _diagnose(verbs: Verbs[Parser]) -> None:
    diagnose = verbs.add_parser(
        "diagnose",
        help="print the verdict",
        epilog=STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_connection(diagnose)
    add_files(
        diagnose,
        "*",
        "diagnose captures, black boxes, dumps, stacks or answers of ncclras instead of a live job",
    )
    diagnose.add_argument("--json", action="store_true", help="print a JSON document")
    diagnose.add_argument(
        "--explain",
        action="store_true",
        help="also print how the verdict was found: who is blocked and how that is known, who"
        " waits for whom, who is left out, and why it is confirmed or not",
    )
    diagnose.add_argument(
        "--wait",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="longest time to wait for a verdict (default 10)",
    )
    diagnose.set_defaults(run=command("cli.diagnose"))


def _open(verbs: Verbs[Parser]) -> None:
    opened = verbs.add_parser(
        "open",
        help="show a recorded job: a capture, or a folder of black boxes or dumps",
        description="Shows a recorded job on the same screens. Needs no network and no torch.",
    )
    add_files(
        opened,
        "+",
        "captures, black boxes, Flight Recorder dumps, py-spy stacks, saved answers of ncclras, or"
        " folders of them",
    )
    opened.add_argument("--job", metavar="NAME",
                        help="name, run id or address:port (default: the one recorded last)"
                        )  # fmt: skip
    add_theme(opened)
    opened.set_defaults(run=command("cli.screen", "run_open"))


def _jobs(verbs: Verbs[Parser]) -> None:
    jobs = verbs.add_parser(
        "jobs",
        help="list all jobs, with or without the recorder",
        description="Lists the jobs on the hosts, what to type for each, and what is in the way of"
        " seeing it. Exit status 0 with jobs, 1 without.",
    )
    add_hosts(jobs)
    jobs.add_argument("--json", action="store_true", help="print a JSON document")
    jobs.add_argument("--wait", type=seconds, default=10.0, metavar="SECONDS",
                      help="longest time to wait for the hosts (default 10)")  # fmt: skip
    jobs.set_defaults(run=command("cli.jobs"), job=None, read_only=True)


def _capture(verbs: Verbs[Parser]) -> None:
    add_capture(verbs, command("cli.capture"))


def _export(verbs: Verbs[Parser]) -> None:
    add_export(verbs, command("cli.export"))


VERBS: Final = (
    Verb(10, _screen),
    Verb(11, _diagnose),
    Verb(12, _open),
    Verb(13, _jobs),
    Verb(14, _capture),
    Verb(15, _export),
)
