"""The verb `stream`."""

from __future__ import annotations

import argparse
from typing import Final

from frtop_tui.cli.file_options import add_consumer, add_wait
from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import rank_list, seconds
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs

KINDS: Final = ("ops", "states", "verdicts", "progress", "gauges")
"""The choices of `--only`."""
EVERY_S: Final = 10.0
"""Seconds between two events about the gauges of one host."""


def _stream(verbs: Verbs[Parser]) -> None:
    verb = add_consumer(
        verbs,
        "stream",
        summary="send what happens in a job to another program",
        description="Writes events to standard output, one JSON object a line, or msgpack maps: how"
        " hosts, ranks and groups change, verdicts as they come and go, and on request every op and"
        " the gauges of hosts."
        " docs/features/stream.md has more. A reader that is too slow gets an event `lost` with"
        " counts. A file is streamed from beginning to end; a live job until ^C (exit status 130),"
        " or until the reader leaves (1).",
        epilog="With `--only ops` frtop asks the agents twice a second for the ops of each rank,"
        " which is work for the rank's host and this one, and writes two events for each op. More"
        " than 16 ranks need --rank.",
    )
    verb.add_argument("-f", "--format", choices=("jsonl", "msgpack"), default="jsonl",
                      help="JSON lines (the default), or one msgpack map after the other"
                      )  # fmt: skip
    verb.add_argument("--only", type=_event_kinds, metavar="KINDS",
                      default=("states", "verdicts", "progress"),
                      help="some of ops,states,verdicts,progress,gauges (default: all but ops and"
                      " gauges)")  # fmt: skip
    verb.add_argument("--gauges", type=seconds, nargs="?", const=EVERY_S, metavar="SECONDS",
                      help="also figures of hosts, GPUs, skew and steps, once in this time"
                      f" (default {EVERY_S:.0f})")  # fmt: skip
    verb.add_argument("--rank", type=rank_list, metavar="LIST",
                      help="only states and ops of these ranks: 0-3,8")  # fmt: skip
    add_wait(verb)
    add_connection(verb)


def _event_kinds(text: str) -> tuple[str, ...]:
    words = tuple(filter(None, (word.strip() for word in text.split(","))))
    if wrong := [word for word in words if word not in KINDS] or (not words and [text]):
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not among {', '.join(KINDS)}")
    return words


VERBS: Final = (Verb(51, _stream),)
