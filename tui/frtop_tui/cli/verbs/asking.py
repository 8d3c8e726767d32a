"""Verbs that ask something of ranks."""

from __future__ import annotations

from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import (
    count,
    every,
    note,
    number,
    rank,
    sampling_seconds,
    seconds_up_to,
    steps,
)
from frtop_tui.cli.verbs.parts import Parser, Verbs, command


def add(verbs: Verbs[Parser]) -> None:
    """Adds `tensors`, `numbers`, `record`, `stacks` and `profile`."""
    _tensors(verbs)
    _numbers(verbs)
    _record(verbs)
    _stacks(verbs)
    _profile(verbs)


def _tensors(verbs: Verbs[Parser]) -> None:
    tensors = verbs.add_parser(
        "tensors", help="show statistics of the tensors in a rank's pending ops"
    )
    add_connection(tensors, pid=False)
    tensors.add_argument("--rank", type=rank, required=True, metavar="N", help="global rank")
    tensors.add_argument("--op", type=number, default=0, metavar="OP",
                         help="only this pending op, by its number or as in the column `op` "
                              "(default: all)")  # fmt: skip
    tensors.add_argument("--members", action="store_true",
                         help="compare all members of the op's group; each works for up to 1.2 s "
                              "(default op: the one that the rank waits for)")  # fmt: skip
    tensors.add_argument("--save", metavar="FILE",
                         help="write the tensors of one op to a safetensors file")  # fmt: skip
    tensors.add_argument("--json", action="store_true", help="print a JSON document")
    tensors.set_defaults(run=command("tensors.command"))


def _numbers(verbs: Verbs[Parser]) -> None:
    numbers = verbs.add_parser(
        "numbers",
        help="find the rank with the first NaN, or whose values differ, in a running job",
        description="Ranks sample the inputs and results of their ops while the job runs, and frtop"
        " compares them: after an all_reduce, a broadcast or an all_gather, all members have"
        " equal bytes. It shows the cost first, and asks nothing of the ranks without a yes. Exit"
        " status 3 if something differs or has NaN, 0 if not, 1 if that is not known.",
    )
    add_connection(numbers)
    numbers.add_argument(
        "--group", metavar="NAME", help="only the ops of this group, on its members"
    )
    numbers.add_argument("--rank", type=rank, nargs="+", metavar="N",
                         help="only these global ranks")  # fmt: skip
    numbers.add_argument("--every", type=every, default=1, metavar="K",
                         help="every Kth op of a group (default: 1)")  # fmt: skip
    numbers.add_argument("--ops", type=count, default=100, metavar="N",
                         help="up to N ops on each rank, 0 for none (default: 100)")  # fmt: skip
    numbers.add_argument("--steps", type=count, default=0, metavar="N",
                         help="also gradients and parameters, at N optimizer steps")  # fmt: skip
    numbers.add_argument("--seconds", type=sampling_seconds, default=60, metavar="S",
                         help="stop after S seconds (default: 60, at most 3600)")  # fmt: skip
    numbers.add_argument(
        "--no-inputs",
        action="store_true",
        help="results only: half the cost, but no rank can be named for a NaN",
    )
    numbers.add_argument("--by", choices=("group",),
                         help="also figures by group: dtypes, means, norms, and how many values"
                              " are NaN, Inf, zero or subnormal")  # fmt: skip
    numbers.add_argument("--first", action="store_true", help="stop at the first finding")
    numbers.add_argument("--stop", action="store_true", help="end the sampling that runs now")
    numbers.add_argument("--yes", action="store_true",
                         help="accept the cost, and do not ask")  # fmt: skip
    numbers.add_argument("--json", action="store_true", help="print a JSON document")
    numbers.set_defaults(run=command("tensor_checks.command"))


def _record(verbs: Verbs[Parser]) -> None:
    record = verbs.add_parser(
        "record",
        help="change what running ranks record, or write a note into their history",
        description="Shows what ranks record, and changes it: phases, call sites, modules, a note"
        " with the current time, a longer ring. `frtop numbers` samples values.",
    )
    add_connection(record)
    record.add_argument("--rank", type=rank, nargs="+", metavar="N",
                        help="global ranks (default: all)")  # fmt: skip
    record.add_argument("--note", type=note, metavar="TEXT",
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
    record.set_defaults(run=command("record"))


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
    stacks.set_defaults(run=command("stacks"))


def _profile(verbs: Verbs[Parser]) -> None:
    profile = verbs.add_parser(
        "profile",
        help="run torch's profiler in running ranks, and write one trace for Perfetto",
        description="Runs torch.profiler in ranks that have frtop's recorder, from their next step "
        "on, and writes one trace of all of them with frtop's own lanes. It shows the cost first. "
        "Ctrl-C ends the ranks that are not complete and writes the others; a second Ctrl-C"
        " discards all. Exit status 0 if all ranks are in the trace, 1 if some are not.",
    )
    add_connection(profile)
    profile.add_argument("--ranks", metavar="LIST", help="ranks, as 0-3,8 (default: all, up to 64)")
    length = profile.add_mutually_exclusive_group()
    length.add_argument("--steps", type=steps, default=5, metavar="N",
                        help="training steps, up to 100 (default: 5)")  # fmt: skip
    length.add_argument("--seconds", type=seconds_up_to(60), metavar="S",
                        help="seconds instead of steps, up to 60"
                        )  # fmt: skip
    profile.add_argument("-o", "--output", metavar="FILE",
                         help="the file to write (default: frtop-JOB-HHMM-profile.json.gz here)"
                         )  # fmt: skip
    profile.add_argument("--shapes", action="store_true", help="record the shapes of inputs")
    profile.add_argument(
        "--stacks", action="store_true", help="record Python stacks, which is slow"
    )
    profile.add_argument("--memory", action="store_true",
                         help="record each allocation, and print a table by rank and device:"
                              " allocated at the start and end, peak, reserved")  # fmt: skip
    profile.add_argument("--no-devices", action="store_true",
                         help="leave out what runs on GPUs")  # fmt: skip
    profile.add_argument("--execution-trace", action="store_true",
                         help="also write each rank's execution trace, for Chakra's converter"
                         )  # fmt: skip
    profile.add_argument("--separate", action="store_true",
                         help="write a folder with a file per rank, as torch wrote it")  # fmt: skip
    profile.add_argument("--wait", type=seconds_up_to(600), default=60.0, metavar="S",
                         help="how long ranks may take to reach a step (default: 60)"
                         )  # fmt: skip
    profile.add_argument("--yes", action="store_true", help="accept the cost, and do not ask")
    profile.set_defaults(run=command("profile.command"))
