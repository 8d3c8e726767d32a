"""The verbs `numbers` and `record`."""

from __future__ import annotations

import argparse
from typing import Final

from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import rank_list
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command

ROWS: Final = 500
"""Rows that `--rows` shows without a number."""


def _numbers(verbs: Verbs[Parser]) -> None:
    numbers = verbs.add_parser(
        "numbers",
        help="find the rank with the first NaN, or whose values differ",
        description="Ranks sample the inputs and results of their ops while the job runs, and frtop"
        " compares them: after an all_reduce, a broadcast or an all_gather, all members have"
        " equal bytes, and a message arrives as it was sent. It shows the cost first, and asks for"
        " a yes before it asks the ranks. Exit status 3 if something differs or has NaN, 0 if not,"
        " 1 if that is not known.",
    )
    numbers.add_argument(
        "--group", metavar="NAME", help="only the ops of this one group, on its members"
    )
    numbers.add_argument("--rank", type=rank_list, metavar="LIST",
                         help="only these ranks: 0-3,8")  # fmt: skip
    numbers.add_argument("--every", type=_every, default=1, metavar="K",
                         help="every Kth op of a group or message (default: 1)")  # fmt: skip
    numbers.add_argument("--ops", type=_count, default=100, metavar="N",
                         help="up to N ops on each rank, 0 for none (default: 100)")  # fmt: skip
    numbers.add_argument("--steps", type=_count, default=0, metavar="N",
                         help="also gradients and parameters, at N optimizer steps")  # fmt: skip
    numbers.add_argument("--seconds", type=_seconds, default=60, metavar="S",
                         help="stop after S seconds (default: 60, at most 3600)")  # fmt: skip
    numbers.add_argument(
        "--no-inputs",
        action="store_true",
        help="results only: half the cost, but no rank can be named for a NaN",
    )
    numbers.add_argument("--by", choices=("group",),
                         help="also figures by group: dtypes, means, norms, and how many values"
                              " are NaN, Inf, zero or subnormal")  # fmt: skip
    numbers.add_argument("--rows", type=_rows, nargs="?", const=ROWS, metavar="N",
                         help="also a row for each sample: its NaN, Inf, minimum, maximum, mean,"
                              f" norm; the first N (default: {ROWS})")  # fmt: skip
    numbers.add_argument("--first", action="store_true", help="stop at the first finding")
    numbers.add_argument("--stop", action="store_true", help="end the sampling that runs now")
    numbers.add_argument("--yes", action="store_true",
                         help="accept the cost, and do not ask")  # fmt: skip
    numbers.add_argument("--json", action="store_true", help="print a JSON document")
    add_connection(numbers)
    numbers.set_defaults(run=command("features.tensor_checks.command"))


def _record(verbs: Verbs[Parser]) -> None:
    record = verbs.add_parser(
        "recorder",
        help="change what running ranks record, or add a note",
        description="Shows what ranks record, and changes it: phases, call sites, modules, a note"
        " with the current time, a longer ring. `frtop numbers` samples values.",
    )
    record.add_argument("--rank", type=rank_list, metavar="LIST",
                        help="these ranks: 0-3,8 (default: all)")  # fmt: skip
    record.add_argument("--note", type=_note, metavar="TEXT",
                        help="a note for the timeline, the history and captures, up to 200 "
                             "characters")  # fmt: skip
    record.add_argument("--phases", choices=("on", "off"),
                        help="record forwards and backwards from now on: 4 µs each")  # fmt: skip
    record.add_argument("--sites", choices=("on", "off"),
                        help="record the line that issued an op: off saves up to 0.9 µs an op,"
                             " and verdicts then name no line")  # fmt: skip
    record.add_argument("--modules", choices=("on", "off"),
                        help="record which module and phase issued an op: 1 µs a call of a"
                             " module and 3 µs an op")  # fmt: skip
    record.add_argument("--longer-ring", action="store_true",
                        help="keep the last 65,536 ops instead of 8,192 until the rank ends:"
                             " 5.8 MB more a rank")  # fmt: skip
    record.add_argument("--json", action="store_true", help="print a JSON document")
    add_connection(record)
    record.set_defaults(run=command("features.tensor_checks.record_command"))


def _note(text: str) -> str:
    """A note for the rings of ranks."""
    from frtop_tui.features.tensor_checks.orders import note_problem  # noqa: PLC0415 - the parser stays quick

    text = text.strip()
    if problem := note_problem(text):
        raise argparse.ArgumentTypeError(problem)
    return text


def _every(text: str) -> int:
    """The K of every Kth op, from 1."""
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r}: 1 is every op, 2 every second one, ...")
    return int(text)


def _seconds(text: str) -> int:
    """How long a rank samples if nobody stops it, from 1 to 3,600 s."""
    if not text.isdecimal() or not 1 <= int(text) <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds are from 1 to 3600")
    return int(text)


def _rows(text: str) -> int:
    """How many rows to show, from 1."""
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows: 1, 2, ...")
    return int(text)


def _count(text: str) -> int:
    """A count; 0 for none."""
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count: 0, 1, 2 ...")
    return int(text)


VERBS: Final = (Verb(33, _numbers), Verb(40, _record))
