"""The writers of the formats, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Final

from frtop_tui.diagnosis.histories import with_trace
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.formats.call_table import call_table
from frtop_tui.files.formats.chrome_trace import chrome_trace
from frtop_tui.files.formats.flight_dumps import flight_dumps
from frtop_tui.files.formats.frame_json import frame_json
from frtop_tui.files.formats.op_table import op_table
from frtop_tui.files.formats.stack_files import collapsed, pyspy_dumps, speedscope
from frtop_tui.text.document import Document
from frtop_tui.text.html_page import html_page
from frtop_tui.text.incident import incident_of
from frtop_tui.text.markdown import markdown

Content = bytes | Mapping[str, bytes]
"""Of a file, or by name those of a folder's files."""


def _incident(frame: Frame) -> Document:
    return incident_of(with_trace(frame), metadata.version("frtop"))


def _html(frame: Frame) -> bytes:
    return html_page(_incident(frame)).encode("utf-8", "replace")


def _markdown(frame: Frame) -> bytes:
    return markdown(_incident(frame)).encode("utf-8", "replace")


def _json(frame: Frame) -> bytes:
    return frame_json(with_trace(frame))


WRITERS: Final[Mapping[str, Callable[[Frame], Content]]] = {
    "html": _html,
    "markdown": _markdown,
    "json": _json,
    "csv": op_table,
    "calls": call_table,
    "chrome": chrome_trace,
    "flightrecorder": flight_dumps,
    "speedscope": speedscope,
    "collapsed": collapsed,
    "pyspy": pyspy_dumps,
}
"""For each of `format_names`."""
