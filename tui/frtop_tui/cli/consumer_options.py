"""Options of the verbs whose output other programs read: `stream` and `metrics`."""

from __future__ import annotations

import argparse
from typing import Final

from frtop_probe.ring.rank_ranges import unfold

STREAM: Final = {
    "help": "send what happens in a job as events to another program",
    "description": "Writes events to standard output, one JSON object a line, or msgpack maps: how"
    " hosts, ranks and groups change, verdicts as they come and go, and on request every op."
    " docs/features/stream.md has more. A reader that is too slow gets an event `lost` with"
    " counts. A file is streamed from beginning to end; a live job until ^C (exit status 130), or"
    " until the reader leaves (1).",
    "epilog": "With `--only ops` frtop asks the agents twice a second for the ops of each rank,"
    " which is work for the rank's host and this one, and writes two events for each op. More than"
    " 16 ranks need --ranks.",
}
METRICS: Final = {
    "help": "serve a job's state as OpenMetrics, for Prometheus",
    "description": "Serves a job's state as OpenMetrics over HTTP, until ^C. Needs `pip install"
    " 'frtop[metrics]'`. Files need --once. docs/features/metrics.md lists the metrics.",
}
_KINDS: Final = ("ops", "states", "verdicts", "progress")


def add_stream(verb: argparse.ArgumentParser) -> None:
    """Adds the options of `frtop stream`."""
    verb.add_argument("--as", dest="form", choices=("jsonl", "msgpack"), default="jsonl",
                      help="JSON lines (the default), or one msgpack map after the other"
                      )  # fmt: skip
    verb.add_argument("--only", type=_event_kinds, metavar="KINDS",
                      default=("states", "verdicts", "progress"),
                      help="some of ops,states,verdicts,progress (default: all but ops)"
                      )  # fmt: skip
    verb.add_argument("--ranks", type=_ranks, metavar="RANKS",
                      help="only states and ops of these global ranks: 0-3,8")  # fmt: skip
    verb.add_argument("--groups", type=_words, metavar="NAMES", default=(),
                      help="only ops and progress of these groups: names or descriptions, with"
                      " commas between")  # fmt: skip


def add_metrics(verb: argparse.ArgumentParser) -> None:
    """Adds the options of `frtop metrics`."""
    verb.add_argument("--listen", type=_address, default=("127.0.0.1", 9400),
                      metavar="ADDRESS:PORT",
                      help="serve here (default 127.0.0.1:9400, for this host only: there is no"
                      " key and no encryption)")  # fmt: skip
    verb.add_argument("--once", action="store_true",
                      help="print the metrics once, and serve nothing")  # fmt: skip
    verb.add_argument("--per-rank", action=argparse.BooleanOptionalAction, default=None,
                      help="a series for each rank (default: up to 64 ranks)")  # fmt: skip
    verb.add_argument("--calls", action="store_true",
                      help="also how long ops take, by kind, group and size: some 3 µs an op for"
                      " the agents")  # fmt: skip
    verb.add_argument("--bytes-of", type=_ranks_or_none, default=frozenset({0}), metavar="RANKS",
                      help="count the bytes of these ranks' ops, which asks the agents for each"
                      " of these ops; `none` for none (default: 0)")  # fmt: skip


def _ranks(text: str) -> frozenset[int]:
    try:
        ranks = frozenset(unfold(text))
    except ValueError:
        ranks = frozenset()
    if not ranks or min(ranks) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of ranks: 0-3,8")
    return ranks


def _ranks_or_none(text: str) -> frozenset[int]:
    return frozenset() if text == "none" else _ranks(text)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is no address: 127.0.0.1:9400, [::1]:9400")
    return host.strip("[]"), int(port)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def _event_kinds(text: str) -> tuple[str, ...]:
    words = _words(text)
    if wrong := [word for word in words if word not in _KINDS] or (not words and [text]):
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not among {', '.join(_KINDS)}")
    return words
