"""The end of each file that a rank and its launcher write to, the rank's own last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.output.telling import lines_of, telling_numbers
from frtop_tui.job.naming import listed, printable
from frtop_tui.job.units import byte_size, duration
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, plain, wrap


def body_lines(file: wire.OutputFile, year: int, width: int) -> Iterator[Line]:
    """The text of a file; lines that say how a rank waits or ended stand out."""
    telling = telling_numbers(file.text, year)
    for number, line in enumerate(lines_of(file.text.removesuffix("\n")), 1):
        yield from wrap(printable(line), width, "warn" if number in telling else "")


class OutputPane(LineView):
    """Follows the end of the output, unless the user has scrolled up."""

    def __init__(self) -> None:
        super().__init__(id="output", classes="pane")
        self._rank: JudgedRank | None = None
        self._frame: Frame | None = None
        self._why_none = ""
        self._built: dict[tuple[str, int], Sequence[Line]] = {}
        """The lines of texts, which are long, by text and width."""

    def show(self, frame: Frame, rank: JudgedRank, why_none: str) -> None:
        """`why_none`: why there is no answer, as long as there is none."""
        before = self._rank.output if self._rank is not None else None
        self._frame, self._rank, self._why_none = frame, rank, why_none
        at_end = self.scroll_offset.y >= self.max_scroll_y
        self.redraw()
        if rank.output is not before and (at_end or before is None):
            self.call_after_refresh(self.action_last)

    def content(self, width: int) -> Sequence[Line]:
        if self._rank is None or self._frame is None:
            return ()
        answer = self._rank.output
        if answer is None:
            return wrap(self._why_none, width, "dim")
        if answer.error:
            return wrap(answer.help or answer.error, width, "warn")
        rows: list[Line] = []
        built: dict[tuple[str, int], Sequence[Line]] = {}
        age_s = self._rank.age_s(answer.at_ns, self._frame.now_ns)
        for file in sorted(answer.files, key=_is_launchers, reverse=True):
            rows += [*([plain("")] if rows else []), *_head(file, age_s, width)]
            if file.text:
                key = file.text, width
                built[key] = self._built.get(key) or [*body_lines(file, self._year, width)]
                rows += built[key]
        self._built = built
        return rows

    @property
    def _year(self) -> int:
        wall_ns = self._frame.wall_ns if self._frame is not None else 0
        return datetime.fromtimestamp(wall_ns / 1e9).astimezone().year


def _is_launchers(file: wire.OutputFile) -> bool:
    return all(one.startswith("launcher") for one in file.streams)


def _head(file: wire.OutputFile, age_s: float, width: int) -> list[Line]:
    """Which file it is, whose, how long nobody has written; or why there is no text."""
    path, streams = wrap(printable(file.path), width, "strong"), listed(list(file.streams))
    if file.error:
        tone = "dim" if file.error == "not a file" else "warn"
        return [*path, *wrap(f"{streams}, {file.help}", width, tone)]
    part = "" if len(file.text) >= file.size else f"the last {byte_size(len(file.text))} of "
    text = f"{streams} · {part}{byte_size(file.size)}"
    if file.size:
        text += f" · last written {duration(file.quiet_s + age_s)} ago"
    return [*path, *wrap(text, width, "dim")]
