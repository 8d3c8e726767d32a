"""Verbs that run unattended: the watcher, and those whose output other programs read."""

from __future__ import annotations

from frtop_tui.cli.consumer_options import METRICS, STREAM, add_metrics, add_stream
from frtop_tui.cli.file_options import add_files
from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import seconds
from frtop_tui.cli.verbs.parts import Parser, Verbs, command
from frtop_tui.features.watch.options import add_watch


def add(verbs: Verbs[Parser]) -> None:
    """Adds `watch`, `history`, `stream` and `metrics`."""
    add_watch(verbs, command("watch.command"), command("history"))
    _consumers(verbs)


def _consumers(verbs: Verbs[Parser]) -> None:
    """The verbs whose output other programs read."""
    for name, described, add in (("stream", STREAM, add_stream), ("metrics", METRICS, add_metrics)):
        verb = verbs.add_parser(
            name,
            help=described["help"],
            description=described["description"],
            epilog=described.get("epilog"),
        )
        add_connection(verb)
        add_files(verb, "*", "captures, black boxes, dumps or stacks instead of a live job")
        add(verb)
        verb.add_argument("--wait", type=seconds, default=10.0, metavar="SECONDS",
                          help="longest time to wait for the job (default 10)")  # fmt: skip
        verb.set_defaults(run=command(f"{name}.command"))
