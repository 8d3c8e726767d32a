"""Verbs that ask ranks something."""

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
        "tensors", help="ask a rank for statistics of the tensors of its pending ops"
    )
    add_connection(tensors, pid=False)
    tensors.add_argument("--rank", type=rank, required=True, metavar="N", help="global rank")
    tensors.add_argument("--op", type=number, default=0, metavar="OP",
                         help="only this pending op: as in the column `op`, or its number "
                              "(default: all)")  # fmt: skip
    tensors.add_argument("--members", action="store_true",
                         help="ask all members of the op's group, and compare: each works for up "
                              "to 1.2 s (default: of the op that the rank waits for)")  # fmt: skip
    tensors.add_argument("--save", metavar="FILE",
                         help="write the tensors of one op to a safetensors file")  # fmt: skip
    tensors.add_argument("--json", action="store_true", help="print a JSON document")
    tensors.set_defaults(run=command("tensors.command"))


def _numbers(verbs: Verbs[Parser]) -> None:
    numbers = verbs.add_parser(
        "numbers",
        help="sample values in ops and steps, and name the rank whose bytes differ, or have NaN",
        description="Asks ranks to sample the inputs and results of their ops while the job runs,"
        " and compares them: after an all_reduce, a broadcast or an all_gather all members have"
        " equal bytes. What it costs the ranks is said first, and nothing is asked without a yes."
        " Exit status 3 if something differs or has NaN, 0 if not, 1 if that cannot be said.",
    )
    add_connection(numbers)
    numbers.add_argument("--group", metavar="NAME", help="only its ops, and its members")
    numbers.add_argument("--rank", type=rank, nargs="+", metavar="N",
                         help="only these global ranks")  # fmt: skip
    numbers.add_argument("--every", type=every, default=1, metavar="K",
                         help="every Kth op of a group (default: 1)")  # fmt: skip
    numbers.add_argument("--ops", type=count, default=100, metavar="N",
                         help="up to N ops on each rank, 0: none (default: 100)")  # fmt: skip
    numbers.add_argument("--steps", type=count, default=0, metavar="N",
                         help="gradients and parameters at N steps of optimizers")  # fmt: skip
    numbers.add_argument("--seconds", type=sampling_seconds, default=60, metavar="S",
                         help="at most so long (default: 60; most: 3600)")  # fmt: skip
    numbers.add_argument(
        "--no-inputs",
        action="store_true",
        help="results only: half the cost, and no rank is named for a NaN",
    )
    numbers.add_argument("--by", choices=("group",),
                         help="also the figures by group: dtypes, means, norms, and how many values"
                              " are NaN, Inf, zero or below the smallest normal one")  # fmt: skip
    numbers.add_argument("--first", action="store_true", help="stop at the first finding")
    numbers.add_argument("--stop", action="store_true", help="end what is sampled now")
    numbers.add_argument("--yes", action="store_true",
                         help="accept the cost without being asked")  # fmt: skip
    numbers.add_argument("--json", action="store_true", help="print a JSON document")
    numbers.set_defaults(run=command("tensor_checks.command"))


def _record(verbs: Verbs[Parser]) -> None:
    record = verbs.add_parser(
        "record",
        help="change what ranks record while they run, or write a note into their history",
        description="Says what ranks record, and changes it: phases, call sites, modules, a note"
        " with the time of now, a longer ring. Numbers are sampled by `frtop numbers`.",
    )
    add_connection(record)
    record.add_argument("--rank", type=rank, nargs="+", metavar="N",
                        help="global ranks (default: all)")  # fmt: skip
    record.add_argument("--note", type=note, metavar="TEXT",
                        help="a note for the timeline, the history and captures: up to 200 "
                             "characters")  # fmt: skip
    record.add_argument("--phases", choices=("on", "off"),
                        help="forwards and backwards, from now on: 4 us each")  # fmt: skip
    record.add_argument("--sites", choices=("on", "off"),
                        help="the line that issued an op, from now on: off saves up to 0.9 us"
                             " an op, and verdicts name no line")  # fmt: skip
    record.add_argument("--modules", choices=("on", "off"),
                        help="module and phase that issue an op, from now on: 1 us a call of a"
                             " module and 3 us an op")  # fmt: skip
    record.add_argument("--longer-ring", action="store_true",
                        help="keep the last 65,536 ops instead of 8,192: 5.8 MB a rank more,"
                             " until it ends")  # fmt: skip
    record.add_argument("--json", action="store_true", help="print a JSON document")
    record.set_defaults(run=command("record"))


def _stacks(verbs: Verbs[Parser]) -> None:
    stacks = verbs.add_parser(
        "stacks",
        help="print the stacks of ranks, on request with frames of C and C++",
        description="Prints the Python stacks of all ranks as one tree, or those of all threads "
        "of the ranks that are named. Nothing stands still for that. With --native a rank does, "
        "for about 0.7 s, at most 5 s; ranks are taken one after the other.",
    )
    add_connection(stacks)
    stacks.add_argument("--rank", type=rank, nargs="+", metavar="N",
                        help="global ranks (default: all, merged)")  # fmt: skip
    stacks.add_argument("--native", action="store_true",
                        help="also frames of C and C++; the named ranks stand still for it"
                        )  # fmt: skip
    stacks.add_argument("--yes", action="store_true",
                        help="do not ask before a rank stands still")  # fmt: skip
    stacks.add_argument("--json", action="store_true", help="print a JSON document")
    stacks.set_defaults(run=command("stacks"))


def _profile(verbs: Verbs[Parser]) -> None:
    profile = verbs.add_parser(
        "profile",
        help="run torch's profiler in running ranks, and write one trace for Perfetto",
        description="Runs torch.profiler inside of ranks that have frtop's recorder, from their "
        "next step on, and writes one trace of all of them with frtop's own lanes. What it costs "
        "is said first. Ctrl-C ends the ranks that are not complete and writes the others, a second"
        " one discards all. Exit status 0 if all ranks are in it, 1 if some are not.",
    )
    add_connection(profile)
    profile.add_argument("--ranks", metavar="LIST", help="such as 0-3,8 (default: all, up to 64)")
    length = profile.add_mutually_exclusive_group()
    length.add_argument("--steps", type=steps, default=5, metavar="N",
                        help="training steps, up to 100 (default: 5)")  # fmt: skip
    length.add_argument("--seconds", type=seconds_up_to(60), metavar="S",
                        help="seconds instead, up to 60: for programs without an optimizer"
                        )  # fmt: skip
    profile.add_argument("-o", "--output", metavar="FILE",
                         help="the file, .json.gz (default: frtop-JOB-HHMM-profile.json.gz here)"
                         )  # fmt: skip
    profile.add_argument("--shapes", action="store_true", help="with the shapes of inputs")
    profile.add_argument("--stacks", action="store_true", help="with the stacks of Python: slow")
    profile.add_argument("--memory", action="store_true",
                         help="with each allocation, and a table by rank and device: allocated at"
                              " the start and end, peak, reserved")  # fmt: skip
    profile.add_argument("--no-devices", action="store_true",
                         help="without what runs on GPUs")  # fmt: skip
    profile.add_argument("--execution-trace", action="store_true",
                         help="also the execution trace of each rank, for Chakra's converter"
                         )  # fmt: skip
    profile.add_argument("--separate", action="store_true",
                         help="a folder with a file for each rank, as torch wrote it")  # fmt: skip
    profile.add_argument("--wait", type=seconds_up_to(600), default=60.0, metavar="S",
                         help="how long ranks may take to reach a step (default: 60)"
                         )  # fmt: skip
    profile.add_argument("--yes", action="store_true", help="do not ask before")
    profile.set_defaults(run=command("profile.command"))
