"""The verb `profile`."""

from __future__ import annotations

import argparse
from typing import Final

from frtop_tui.cli.file_options import add_files
from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import rank_list, seconds_up_to
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command


def _profile(verbs: Verbs[Parser]) -> None:
    profile = verbs.add_parser(
        "profile",
        help="run torch's profiler in ranks: one trace for Perfetto",
        description="Runs torch.profiler in ranks that have frtop's recorder, from their next step "
        "on, and writes one trace of all of them with frtop's own lanes. It shows the cost first. "
        "Ctrl-C ends the ranks that are not complete and writes the others; a second Ctrl-C"
        " discards all. With PATHs, it merges what the script's own torch.profiler wrote there,"
        " and no rank is profiled. Exit status 0 if all ranks are in the trace, 1 if some are not.",
    )
    add_files(profile, "*", "traces of torch.profiler to merge, or folders with them; only --rank"
                            " and -o go with it")  # fmt: skip
    profile.add_argument("--rank", type=rank_list, metavar="LIST",
                         help="these ranks: 0-3,8 (default: all, up to 64)")  # fmt: skip
    length = profile.add_mutually_exclusive_group()
    length.add_argument("--steps", type=_steps, metavar="N",
                        help="training steps, up to 100 (default: 5)")  # fmt: skip
    length.add_argument("--seconds", type=seconds_up_to(60), metavar="S",
                        help="seconds instead of steps, up to 60"
                        )  # fmt: skip
    profile.add_argument("--at-step", type=_step, metavar="N",
                         help="begin at step N instead of the next one; --wait is the time for it"
                         )  # fmt: skip
    profile.add_argument("--warm-up", type=_steps, metavar="N",
                         help="run the profiler for N steps before, and drop what it records"
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
    profile.add_argument("--execution-trace", action="store_true",
                         help="also write each rank's execution trace, for Chakra's converter"
                         )  # fmt: skip
    profile.add_argument("--separate", action="store_true",
                         help="write a folder with a file per rank, as torch wrote it")  # fmt: skip
    profile.add_argument("--wait", type=seconds_up_to(3600), default=60.0, metavar="S",
                         help="how long ranks may take to reach a step (default: 60)"
                         )  # fmt: skip
    profile.add_argument("--yes", action="store_true", help="accept the cost without being asked")
    add_connection(profile)
    profile.set_defaults(run=command("features.profile.command"))


def _steps(text: str) -> int:
    """Steps of a profile, from 1 to 100."""
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}: steps are from 1 to 100")
    return int(text)


def _step(text: str) -> int:
    """The number of a step."""
    if not text.isdecimal() or not 1 <= int(text) < 1 << 48:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a step")
    return int(text)


VERBS: Final = (Verb(32, _profile),)
