"""The formats in which a job can be written, one per line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from frtop_tui.files.formats.table import FORMATS
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
        """The name of the format at the cursor."""
        return _NAMES[min(self.cursor, len(_NAMES) - 1)]

    def content(self, width: int) -> Sequence[Line]:
        return [
            clip(((f" {name:<{_WIDTH}}", "strong"), (one.summary, "")), width)
            for name, one in FORMATS.items()
        ]

    def title(self) -> str:
        """What the border says of the chosen format."""
        return f"export as {self.chosen}{': a folder' if FORMATS[self.chosen].is_folder else ''}"
