"""Fields that take text; the key line shows what works while one has the focus."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input


def _clears(identifier: str) -> Binding:
    return Binding("ctrl+u", "delete_left_all", "clear",
                   tooltip="clear the line up to the cursor", id=identifier)  # fmt: skip


class FilterField(Input):
    """The words of a filter, below the table."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "rows", tooltip="keep the filter, and go to the rows",
                id="filter.rows"),
        _clears("filter.clear"),
    ]  # fmt: skip

    def __init__(self, value: str, placeholder: str) -> None:
        super().__init__(
            value, placeholder=placeholder, id="filter", compact=True, select_on_focus=False
        )


class PathField(Input):
    """Where the file of an export goes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "write", tooltip="write the file", id="path.write"),
        Binding("tab", "app.focus_next", "formats", tooltip="choose another format",
                id="path.formats"),
        _clears("path.clear"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__(placeholder="path", id="export-path", compact=True, select_on_focus=False)
