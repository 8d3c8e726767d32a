"""The formats in which a job can be exported: a new one is a line here and its writer.

Writers are imported when they write: the command line and the screens need only the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from frtop_tui.diagnosis.model import Frame

Content = bytes | Mapping[str, bytes]
"""A file, or the files of a folder by name."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    Attributes:
        summary: its purpose.
        suffix: end of default names.
        writer: module beside this one, and the function in it that takes a frame.
        is_folder: each rank gets its own file; otherwise it can go to standard output.
    """

    summary: str
    suffix: str
    writer: tuple[str, str]
    is_folder: bool = False

    def encode(self, frame: Frame) -> Content:
        """Returns the whole content.

        Raises:
            NotWritten: the frame lacks what this format shows, such as stacks.
        """
        module, function = self.writer
        content: Content = getattr(import_module(f"{__package__}.{module}"), function)(frame)
        return content


FORMATS: Final[Mapping[str, Format]] = {
    "html": Format("a report for people: one page, complete", ".html", ("reports", "html")),
    "markdown": Format(
        "the same report, to paste into an incident", ".md", ("reports", "markdown")
    ),
    "json": Format("the complete judged frame, for programs", ".json", ("reports", "json")),
    "csv": Format("one row per rank and op, for tables", ".csv", ("op_table", "op_table")),
    "calls": Format(
        "one row per line, group and size: what its ops cost",
        ".calls.csv",
        ("call_table", "call_table"),
    ),
    "chrome": Format(
        "a trace of all ranks, for ui.perfetto.dev",
        ".trace.json",
        ("chrome_trace", "chrome_trace"),
    ),
    "flightrecorder": Format(
        "a folder with a dump per rank, for torchfrtrace",
        "-dumps",
        ("flight_dumps", "flight_dumps"),
        is_folder=True,
    ),
    "speedscope": Format(
        "stacks, for speedscope.app", ".speedscope.json", ("stack_files", "speedscope")
    ),
    "collapsed": Format(
        "stacks, one line each, for flamegraph.pl", ".collapsed.txt", ("stack_files", "collapsed")
    ),
    "pyspy": Format(
        "a folder with the stacks of each rank, as py-spy writes them",
        "-stacks",
        ("stack_files", "pyspy_dumps"),
        is_folder=True,
    ),
}
"""By name, in the order of the list."""
