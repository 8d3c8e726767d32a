"""The verbs `watch` and `history`, and the options of `frtop run` for a watcher beside the job."""

from __future__ import annotations

import argparse
import math
from typing import Final

from frtop_tui.cli.host_options import add_connection, pid_of
from frtop_tui.cli.verbs.parts import BesideRun, Parser, Verb, Verbs, command

UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
EVERY_S: Final = 3600.0
BEFORE_S: Final = 30.0
"""A confirmation takes up to 12 s, a capture of a large job some more."""
DEADLINE_S: Final = 60.0


MOST_CAPTURES: Final = 100
MOST_BYTES: Final = 4 << 30
"""All captures together; one of 64 ranks with full rings takes 7 MB."""
SIZES: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _watch(verbs: Verbs[Parser]) -> None:
    watch = verbs.add_parser(
        "watch",
        help="watch all jobs: capture a hang in time, tell people",
        description="Watches all jobs on the hosts, with or without the recorder. It captures a"
        " confirmed verdict, then runs a command or sends a web hook; each event is one line of"
        " JSON. If the op's watchdog timeout is near, the capture does not wait for the"
        " confirmation. It runs until a signal ends it; a restart continues where it was."
        " docs/features/watch.md has a service for systemd, Slurm and Kubernetes.",
    )
    watch.add_argument("--exec", dest="command", metavar="CMD",
                       help="run CMD for each confirmed verdict, with the verdict as JSON on its"
                       " input; without a shell")  # fmt: skip
    watch.add_argument("--shell", action="store_true", default=None,
                       help="run CMD with sh -c")  # fmt: skip
    watch.add_argument("--post", metavar="URL",
                       help="send each confirmed verdict to URL, as JSON by POST")  # fmt: skip
    watch.add_argument("--captures", metavar="FOLDER",
                       help="where captures go (default: captures in the folder of --state);"
                       " none: no captures")  # fmt: skip
    watch.add_argument("--keep", type=_count, default=MOST_CAPTURES, metavar="N",
                       help="keep the N newest captures, and those of hangs that last (default"
                       f" {MOST_CAPTURES})")  # fmt: skip
    watch.add_argument("--keep-bytes", type=size, default=MOST_BYTES, metavar="SIZE",
                       help="total size of the captures kept: 500M, 4G (default 4G)")  # fmt: skip
    watch.add_argument("--state", metavar="FOLDER",
                       help="where to note what was reported, so that it is not reported again"
                       " (default: ~/.local/state/frtop)")  # fmt: skip
    watch.add_argument("--every", type=time_span, metavar="TIME",
                       help="report one cause in one job once in TIME: 90s, 10m, 6h, 2d"
                       " (default 1h)")  # fmt: skip
    watch.add_argument("--before", type=time_span, metavar="TIME",
                       help="capture this long before the op's watchdog timeout, even if the hang"
                       " is not confirmed (default 30s)")  # fmt: skip
    watch.add_argument("--deadline", type=time_span, metavar="TIME",
                       help="end CMD after TIME (default 60s)")  # fmt: skip
    watch.add_argument("--slow", action="store_true",
                       help="also capture and report slow jobs; without it they are one line"
                       )  # fmt: skip
    watch.add_argument("--kill", action="store_true",
                       help="end the ranks of a job with a confirmed verdict, after capture and"
                       " CMD: SIGTERM, after 15 s SIGKILL; only this user's ranks on this host"
                       )  # fmt: skip
    watch.add_argument("--dry-run", action="store_true",
                       help="capture, run, send and note nothing; only show what it would do"
                       )  # fmt: skip
    watch.add_argument("--below", type=pid_of, metavar="PID",
                       help="only jobs that this process started, until it ends"
                       )  # fmt: skip
    add_connection(watch, without=("--pid",))
    watch.set_defaults(run=command("features.watch.command"))


def _history(verbs: Verbs[Parser]) -> None:
    history = verbs.add_parser(
        "history",
        help="list hosts that were culprits again and again",
        description="Lists the hosts that confirmed verdicts of `frtop watch` blamed: how often,"
        " for what, in which jobs.",
    )
    history.add_argument("--days", type=_days, default=14.0, metavar="N",
                         help="look back N days (default 14; 90 are kept)")  # fmt: skip
    history.add_argument("--json", action="store_true", help="print a JSON document")
    history.add_argument("--forget", action="store_true", help="remove the history")
    history.add_argument("--state", metavar="FOLDER",
                         help="the folder of the watcher's state (default:"
                         " ~/.local/state/frtop)")  # fmt: skip
    history.set_defaults(run=command("features.watch.history_command"))


def _days(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 366:
        raise argparse.ArgumentTypeError(f"{text!r}: days must be more than 0, at most 366")
    return value


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 1 <= value <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r}: captures to keep are 1 to 100000")
    return value


def size(text: str) -> int:
    """Bytes, from `1000000`, `500M` or `4G`: powers of 1024."""
    number, unit = (text[:-1], SIZES[text[-1]]) if text[-1:] in SIZES else (text, 1)
    value = int(number) * unit if number.isdecimal() and len(number) < 16 else 0
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: 500M, 4G")
    return value


def time_span(text: str) -> float:
    """Seconds, from `90`, `90s`, `10m`, `6h` or `2d`."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        value = float(number) * UNITS[unit]
    except ValueError:
        value = math.nan
    if not 0 < value <= 366 * UNITS["d"]:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: 90s, 10m, 6h, 2d")
    return value


def _add_beside(run: Parser) -> None:
    run.add_argument("--watch", action="store_true",
                     help="also watch the job, as `frtop watch` does; its lines go to stderr"
                     )  # fmt: skip
    run.add_argument("--watch-options", default="", metavar="OPTIONS",
                     help="--watch with options of `frtop watch`: '--exec ./tell.sh --kill'"
                     )  # fmt: skip


def _start_beside(options: argparse.Namespace) -> str:
    if not (options.watch or options.watch_options):
        return ""
    from frtop_tui.features.watch.below import start_watch  # noqa: PLC0415 - seldom needed

    return start_watch(options.watch_options)


VERBS: Final = (Verb(21, _watch), Verb(24, _history))
BESIDE_RUN: Final = BesideRun(_add_beside, _start_beside)
