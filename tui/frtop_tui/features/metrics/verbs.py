"""The verb `metrics`."""

from __future__ import annotations

import argparse
from typing import Final

from frtop_tui.cli.file_options import add_consumer, add_wait
from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import rank_list
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs


def _metrics(verbs: Verbs[Parser]) -> None:
    verb = add_consumer(
        verbs,
        "metrics",
        summary="serve a job's state as OpenMetrics, for Prometheus",
        description="Serves a job's state as OpenMetrics over HTTP, until ^C. Needs `pip install"
        " 'frtop[metrics]'`. Files need --once. docs/features/metrics.md lists the metrics.",
    )
    verb.add_argument("--listen", type=_address, default=("127.0.0.1", 9400),
                      metavar="ADDRESS:PORT",
                      help="serve here (default 127.0.0.1:9400, for this host only: there is no"
                      " key and no encryption)")  # fmt: skip
    verb.add_argument("--once", action="store_true",
                      help="print the metrics once instead of serving them")  # fmt: skip
    verb.add_argument("--per-rank", action=argparse.BooleanOptionalAction, default=None,
                      help="a series for each rank (default: up to 64 ranks)")  # fmt: skip
    verb.add_argument("--calls", action="store_true",
                      help="also how long ops take, by kind, group and size: about 3 µs an op for"
                      " the agents")  # fmt: skip
    verb.add_argument("--bytes-of", type=_ranks_or_none, default=frozenset({0}), metavar="LIST",
                      help="count the bytes of these ranks' ops, which asks the agents for each"
                      " of these ops; `none` for none (default: 0)")  # fmt: skip
    add_wait(verb)
    add_connection(verb)


def _ranks_or_none(text: str) -> frozenset[int]:
    return frozenset() if text == "none" else rank_list(text)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not an address: 127.0.0.1:9400, [::1]:9400")
    return host.strip("[]"), int(port)


VERBS: Final = (Verb(50, _metrics),)
