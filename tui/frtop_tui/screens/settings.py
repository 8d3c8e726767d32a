"""Versions and settings of all ranks, and which of them differ: no stack shows that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.device_settings import settings_of_rank
from frtop_tui.job.environment import environment, is_own
from frtop_tui.job.naming import listed
from frtop_tui.job.units import counted
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import open_ranks
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, fit, plain, shorten_ranks

MOST_VALUES: Final = 64
"""Values of one setting: nobody reads a value for each of a thousand ranks."""
NAME: Final = 30
"""Cells of a name; more in long lines."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A line: a value with its ranks, or a name, or a sentence."""

    name: str
    value: str = ""
    ranks: tuple[int, ...] = ()
    tone: str = ""


def setting_rows(views: Iterable[JudgedRank]) -> list[SettingRow]:
    """What differs and should not, what hides device ops, then all the rest."""
    known = list(views)
    found = environment(known)
    rows: list[SettingRow] = []
    own: list[str] = []
    for name, by_value in found.members.items():
        if is_own(name):
            own.append(name)
            continue
        rows.append(SettingRow(f"{name} differs", tone="warn"))
        ordered = sorted(by_value.items(), key=lambda one: -len(one[1]))
        for index, (value, ranks) in enumerate(ordered[:MOST_VALUES]):
            rows.append(SettingRow("", value, ranks, "late" if index else ""))
        if len(ordered) > MOST_VALUES:
            rows.append(SettingRow("", f"and {counted(len(ordered) - MOST_VALUES, 'more value')}"))
    if not rows and len(known) > len(found.unknown):
        rows.append(SettingRow("no setting differs between ranks", tone="good"))
    rows += _in_the_way(known)
    if found.unknown:
        rows.append(SettingRow("", "not known: without a recorder", found.unknown, "dim"))
    if found.common:
        rows.append(SettingRow("the same on all ranks", tone="strong"))
        rows += [SettingRow(f"  {name}", value) for name, value in found.common.items()]
    if own:
        rows.append(SettingRow("each rank has its own", tone="strong"))
        rows.append(SettingRow("", listed(own, 12), tone="dim"))
    return rows


def _in_the_way(views: Iterable[JudgedRank]) -> list[SettingRow]:
    """Settings that hide what ops do on devices, with their ranks."""
    sentences: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for view in views:
        for one in settings_of_rank(view):
            sentences[one.sentence, one.blinds].append(view.rank)
    if not sentences:
        return []
    return [
        SettingRow("in the way of seeing devices", tone="strong"),
        *(
            SettingRow("", text, tuple(sorted(ranks)), "warn" if blinds else "dim")
            for (text, blinds), ranks in sentences.items()
        ),
    ]


class SettingsPane(LineView):
    """`enter` lists the ranks that have a value."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "choose", "ranks", tooltip="list the ranks with this value", id="settings.open"
        ),
    ]

    def __init__(self) -> None:
        super().__init__(id="settings", classes="pane", has_cursor=True)
        self.entitle("versions and settings")
        self.rows: Sequence[SettingRow] = ()
        self._of: tuple[object, ...] = ()

    def show(self, frame: Frame) -> None:
        # Identities hardly ever change: comparing them costs a hundredth of comparing settings.
        of = (
            *[view.identity for view in frame.ranks.values()],
            *[view.groups for view in frame.ranks.values()],
        )
        if len(of) != len(self._of) or any(a is not b for a, b in zip(of, self._of, strict=True)):
            self._of = of
            self.rows = setting_rows(frame.ranks.values())
            differ = sum(row.tone == "warn" and bool(row.name) for row in self.rows)
            count = f": {differ} differ{'s' * (differ == 1)}" if differ else ""
            self.entitle(f"versions and settings{count}")
        self.redraw()

    @property
    def chosen(self) -> SettingRow | None:
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def content(self, width: int) -> Sequence[Line]:
        if not self.rows:
            return (plain("no ranks yet", "dim"),)
        longest = max((len(row.name) for row in self.rows if row.value), default=0)
        name = max(NAME, min(longest, width // 2))
        return [_line(row, width, name) for row in self.rows]


def _line(row: SettingRow, width: int, name: int) -> Line:
    if row.name and not row.value:
        return clip(plain(row.name, row.tone), width)
    if row.name:
        return clip(((fit(row.name, name), "dim"), (" " + row.value, row.tone)), width)
    if not row.ranks:
        return clip(plain(f"  {row.value}", row.tone), width)
    count = counted(len(row.ranks), "rank")
    room = max(12, min(NAME + 10, width - len(row.value) - len(count) - 8))
    ranks = shorten_ranks(fold(row.ranks), room)
    return clip(((f"  {row.value}  ", row.tone), (f"{count}  {ranks}", "dim")), width)


class SettingsScreen(FrameScreen):
    """One list; `enter` goes to the ranks with a value."""

    AUTO_FOCUS = "#settings"
    crumb = "settings"
    BINDINGS: ClassVar[list[BindingType]] = [BACK]

    def panes(self) -> ComposeResult:
        yield SettingsPane()

    def draw(self, frame: Frame) -> None:
        self.query_one(SettingsPane).show(frame)

    def on_line_view_chosen(self) -> None:
        row = self.query_one(SettingsPane).chosen
        if row is not None and row.ranks:
            self.post_message(open_ranks(row.ranks))
