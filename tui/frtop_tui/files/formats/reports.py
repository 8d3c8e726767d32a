"""A judged frame as a report for people, or as JSON; both with the trace of the diagnosis."""

from __future__ import annotations

from importlib import metadata

from frtop_tui.diagnosis.histories import with_trace
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.formats.frame_json import frame_json
from frtop_tui.registry import notes_on
from frtop_tui.text import html_page
from frtop_tui.text import markdown as markdown_page
from frtop_tui.text.document import Document
from frtop_tui.text.incident import incident_of


def html(frame: Frame) -> bytes:
    return html_page.html_page(_incident(frame)).encode("utf-8", "replace")


def markdown(frame: Frame) -> bytes:
    return markdown_page.markdown(_incident(frame)).encode("utf-8", "replace")


def json(frame: Frame) -> bytes:
    return frame_json(with_trace(frame))


def _incident(frame: Frame) -> Document:
    known = [line for lines in notes_on(frame).values() for line in lines]
    return incident_of(with_trace(frame), metadata.version("frtop"), known)
