"""Asks for a format and a path, and has the job written there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.formats.registry import FORMATS
from frtop_tui.files.output_path import default_path, expanded
from frtop_tui.files.paths import is_folder
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.messages import ExportJob
from frtop_tui.widgets.fields import PathField
from frtop_tui.widgets.file_status import short_path
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip

_NAMES: Final = tuple(FORMATS)
_WIDTH: Final = max(map(len, _NAMES)) + 2


class FormatList(LineView):
    """The list, with a cursor that chooses the format."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "path", tooltip="go on to the path", id="format.path"),
    ]

    def __init__(self) -> None:
        super().__init__(has_cursor=True, id="formats", classes="pane")

    @property
    def chosen(self) -> str:
        return _NAMES[min(self.cursor, len(_NAMES) - 1)]

    def content(self, width: int) -> Sequence[Line]:
        return [
            clip(((f" {name:<{_WIDTH}}", "strong"), (one.summary, "")), width)
            for name, one in FORMATS.items()
        ]

    def title(self) -> str:
        """The border title for the chosen format."""
        return f"export as {self.chosen}{': a folder' if FORMATS[self.chosen].is_folder else ''}"


HINT: Final = (
    "The file has names, paths and stacks of the job. "
    "enter on the path writes it; an existing file stays."
)


class ExportScreen(FrameScreen):
    """Opened over another screen; the second `enter`, on the path, writes the file."""

    AUTO_FOCUS = "#formats"
    crumb = "export"
    is_visited = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back_or_leave", "back", tooltip="write nothing", id="back"),
    ]

    def __init__(self, marked: set[int]) -> None:
        super().__init__(marked)
        self._proposed = ""

    def panes(self) -> ComposeResult:
        yield FormatList()
        yield PathField()
        yield Static(HINT, id="export-hint", markup=False)

    def draw(self, frame: Frame) -> None:
        formats = self.query_one(FormatList)
        formats.redraw()
        formats.entitle(formats.title())
        self._propose(frame, formats.chosen)

    def _propose(self, frame: Frame, name: str) -> None:
        """Fills in an unused path, unless the user has typed one."""
        field = self.query_one(Input)
        if field.value != self._proposed or field.has_focus:
            return
        try:
            folder = self.preferences.folder
            path = short_path(
                str(default_path(frame, frame.wall_ns, FORMATS[name].suffix, folder=folder))
            )
        except OSError:  # the current folder was deleted
            path = ""
        self._proposed = field.value = path

    def on_line_view_moved(self) -> None:
        self.draw_all()

    def on_line_view_chosen(self) -> None:
        field = self.query_one(Input)
        # `focus()` acts some messages later; the next key must reach the field.
        self.set_focus(field)
        field.cursor_position = len(field.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip()
        if not text:
            self.app.notify("Name a file: there is no path yet.", timeout=8)
            return
        path = expanded(text)
        if not is_folder(path.parent):
            self.app.notify(f"There is no folder {path.parent}.", timeout=8)
            return
        name = self.query_one(FormatList).chosen
        self.app.post_message(ExportJob(path, name))  # the app closes this screen

    async def action_back_or_leave(self) -> None:
        """From the path back to the formats, from there to the screen before."""
        if self.query_one(Input).has_focus:
            self.set_focus(self.query_one(FormatList))
        else:
            await self.run_action("app.back")
