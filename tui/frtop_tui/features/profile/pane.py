"""The pane of an order for torch's profiler: the question with its cost, then how far ranks are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from frtop_tui.features.profile.allocation_words import allocation_lines
from frtop_tui.features.profile.model import (
    OPTION_COSTS,
    ProfileOptions,
    ProfileProgress,
    RankProfile,
    cost_lines,
    length_text,
)
from frtop_tui.features.profile.words import OPTION_NAMES, progress_text, rank_text, result_lines
from frtop_tui.job.naming import folded
from frtop_tui.job.units import counted
from frtop_tui.widgets.formats import short_path
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, plain, wrap

_KEYS = (("s", "shapes"), ("c", "stacks"), ("m", "memory"), ("d", "devices"), ("x", "execution"))
_TONES = {"failed": "bad", "done": "good", "running": "moving", "fetching": "strong"}


class ProfilePane(LineView):
    """Scrolls through lines of text."""

    def __init__(self) -> None:
        super().__init__(id="profile", classes="pane")
        self.options = ProfileOptions()
        self.ranks: tuple[int, ...] = ()
        self.path = ""
        self.progress: ProfileProgress | None = None
        self.unavailable = ""
        self.standing = ""
        self.before = ""
        """The file of the order before."""
        self.waiting: tuple[int, ...] = ()

    def ask(
        self,
        ranks: tuple[int, ...],
        options: ProfileOptions,
        path: str,
        unavailable: str,
        *,
        standing: str = "",
        before: str = "",
    ) -> None:
        """Shows the question.

        Args:
            ranks: whom it is about.
            options: what would be ordered.
            path: of the file that would be written.
            unavailable: why nothing can be ordered, "" where it can.
            standing: which ranks stand still, in words.
            before: file of the order before.
        """
        self.ranks, self.options, self.path = ranks, options, path
        self.standing, self.before = standing, before
        self.progress, self.unavailable = None, unavailable
        self.entitle(f"profile {folded(ranks)}?")
        self.redraw()

    def show(self, progress: ProfileProgress, waiting: tuple[int, ...] = ()) -> None:
        """Shows what becomes of the order; `waiting` are other ranks, that `P` was pressed for."""
        self.progress, self.waiting = progress, waiting
        self.entitle(f"profile of {folded(rank.rank for rank in progress.ranks)}")
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.progress is not None:
            return list(_progress_rows(self.progress, self.waiting, width))
        return [row for line in self._question() for row in _wrapped(line, width)]

    def _question(self) -> Iterable[Line]:
        options = self.options
        if self.unavailable:
            yield plain(self.unavailable, "warn")
            return
        for text in cost_lines(options):
            yield plain(text)
        if self.standing:
            yield plain(f"{self.standing} r samples stacks instead, now.", "warn")
        yield ()
        yield (("  + -", "key"), (f"  for {length_text(options)}", "strong"), ("   u", "key"),
               ("  seconds instead of steps, and back", ""))  # fmt: skip
        for key, name in _KEYS:
            on = bool(getattr(options, name))
            cost = f": {OPTION_COSTS[name]}" if name in OPTION_COSTS else ""
            yield ((f"  {key}  ", "key"), ("[x] " if on else "[ ] ", ""),
                   (OPTION_NAMES[name], "strong" if on else ""), (cost, ""))  # fmt: skip
        yield ()
        yield (("enter", "key"), (" orders it, into ", ""), (short_path(self.path), "strong"))
        yield (("esc", "key"), (" leaves, and nothing is ordered", ""))
        if self.before:
            yield plain(f"The order before is written: {short_path(self.before)}", "dim")


def _progress_rows(
    progress: ProfileProgress, waiting: tuple[int, ...], width: int
) -> Iterable[Line]:
    if progress.state in ("running", "merging"):
        if waiting:
            text = f"{folded(waiting)}: nothing is ordered, as this order is under way; P asks when"
            yield from wrap(f"{text} it is over", width, "warn")
        yield plain(progress_text(progress), "strong")
        if progress.can_be_ended:
            complete = sum(rank.complete for rank in progress.ranks)
            text = f" writes {counted(complete, 'complete rank')}, without the others"
            yield (("w", "key"), (text, ""))
        yield (("esc", "key"), (" withdraws the order in all ranks, and writes nothing", ""))
    else:
        words = {"written": "good", "failed": "bad", "withdrawn": "warn"}
        for text in result_lines(progress):
            yield from wrap(text, width, words.get(progress.state, ""))
        opens = "ui.perfetto.dev opens it; " if progress.state == "written" else ""
        again = folded(waiting or [rank.rank for rank in progress.ranks])
        yield plain(f"{opens}P asks for another one, of {again}", "dim")
        if table := allocation_lines(progress.allocations):
            yield ()
            yield from (clip(plain(text), width) for text in table)
    yield ()
    if progress.state != "withdrawn":  # then it is over in all of them
        yield from (_rank_row(rank, width) for rank in progress.ranks)


def _rank_row(rank: RankProfile, width: int) -> Line:
    tone = _TONES.get(rank.stage, "")
    return clip(((f"rank {rank.rank:<5} {rank.host:<12} ", ""), (rank_text(rank), tone)), width)


def _wrapped(line: Line, width: int) -> Sequence[Line]:
    if len(line) == 1:
        return wrap(line[0][0], width, line[0][1])
    return (clip(line, width),)
