"""The names of the formats, and what each is for: known without loading their writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FORMAT_NAMES: Final[Mapping[str, str]] = {
    "html": "a report for people: one page, complete",
    "markdown": "the same report, to paste into an incident",
    "json": "the complete judged frame, for programs",
    "csv": "one row per rank and op, for tables",
    "calls": "one row per line, group and size: what its ops cost",
    "chrome": "a trace of all ranks, for ui.perfetto.dev",
    "flightrecorder": "a folder with a dump per rank, for torchfrtrace",
    "speedscope": "stacks, for speedscope.app",
    "collapsed": "stacks, one line each, for flamegraph.pl",
    "pyspy": "a folder with the stacks of each rank, as py-spy writes them",
}
"""By name, in the order in which they are offered."""
SUFFIXES: Final[Mapping[str, str]] = {
    "html": ".html",
    "markdown": ".md",
    "json": ".json",
    "csv": ".csv",
    "calls": ".calls.csv",
    "chrome": ".trace.json",
    "flightrecorder": "-dumps",
    "speedscope": ".speedscope.json",
    "collapsed": ".collapsed.txt",
    "pyspy": "-stacks",
}
"""What default names end with."""
FOLDERS: Final = frozenset({"flightrecorder", "pyspy"})
"""Formats of which each rank is a file of its own."""


def is_one_file(name: str) -> bool:
    """Whether a format fits on standard output."""
    return name not in FOLDERS
