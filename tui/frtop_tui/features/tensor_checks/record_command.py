"""`frtop recorder`: shows and changes what running ranks record."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from frtop_tui.cli.live import connected, wait_for_ranks
from frtop_tui.cli.output import show_progress
from frtop_tui.features.tensor_checks.command import json_text, ranks_to_ask
from frtop_tui.features.tensor_checks.orders import JobNumbers, RecordOrder
from frtop_tui.features.tensor_checks.rank_orders import RankOrders
from frtop_tui.features.tensor_checks.record_words import record_words
from frtop_tui.job.naming import folded, printable
from frtop_tui.text.lines import labelled

APPEAR_S: Final = 8.0


def run(options: argparse.Namespace) -> int:
    """Returns 0 if all ranks obeyed, 1 if not."""
    with connected(options) as source:
        frame = wait_for_ranks(source, APPEAR_S, show_progress)
        ranks = ranks_to_ask(frame, options.rank or sorted(frame.ranks))
        named = {
            "phases": options.phases, "sites": options.sites, "modules": options.modules
        }  # fmt: skip
        switches = {name: wanted == "on" for name, wanted in named.items() if wanted is not None}
        order = RecordOrder(
            ranks, switches=switches, note=options.note or "", longer=options.longer_ring
        )
        found = RankOrders(source, frame).send(order)
    if options.json:
        ranks_now = {str(rank): one for rank, one in sorted(found.controls.items())}
        print(json_text({"schema": "frtop-recorder-1", "ranks": ranks_now}))
    else:
        print("\n".join(_lines(found, options)))
    return 1 if any(one.problem for one in found.controls.values()) else 0


def _lines(found: JobNumbers, options: argparse.Namespace) -> Iterator[str]:
    done = [rank for rank, one in found.controls.items() if one.recorded and not one.problem]
    if options.note and done:
        yield printable(f"noted on {folded(done)}: {options.note}")
    yield from map(printable, labelled(record_words(found), 10))
