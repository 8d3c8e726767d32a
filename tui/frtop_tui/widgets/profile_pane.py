"""The pane of an order for torch's profiler: the question with its cost, then how far ranks are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from frtop_tui.job.naming import folded
from frtop_tui.job.profiles import ProfileOptions, ProfileProgress, RankProfile, cost_lines
from frtop_tui.report.allocations import allocation_lines
from frtop_tui.report.profiles import progress_text, rank_text, result_lines
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, plain, wrap

_OPTIONS = (
    ("s", "shapes", "shapes of inputs"),
    ("c", "stacks", "stacks of Python"),
    ("m", "memory", "torch's allocator: allocated, peak, reserved"),
    ("d", "devices", "what runs on GPUs"),
    ("x", "execution", "execution trace, for Chakra's converter"),
)
"""Key, option, and what it adds."""
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

    def ask(
        self,
        ranks: tuple[int, ...],
        options: ProfileOptions,
        path: str,
        unavailable: str,
        standing: str = "",
    ) -> None:
        """Shows the question, and which ranks are `standing` still."""
        self.ranks, self.options, self.path = ranks, options, path
        self.standing = standing
        self.progress, self.unavailable = None, unavailable
        self.entitle(f"profile {folded(ranks)}?")
        self.redraw()

    def show(self, progress: ProfileProgress) -> None:
        """Shows what becomes of the order."""
        self.progress = progress
        self.entitle(f"profile of {folded(rank.rank for rank in progress.ranks)}")
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.progress is not None:
            return list(_progress_rows(self.progress, width))
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
        length = f"{options.steps} steps" if options.steps else f"{options.seconds:g} s"
        yield (("  + -", "key"), (f"  for {length}", "strong"), ("   u", "key"),
               ("  seconds instead of steps, and back", ""))  # fmt: skip
        for key, name, text in _OPTIONS:
            on = bool(getattr(options, name))
            yield ((f"  {key}  ", "key"), ("[x] " if on else "[ ] ", ""),
                   (text, "strong" if on else ""))  # fmt: skip
        yield ()
        yield (("enter", "key"), (" orders it, into ", ""), (self.path, "strong"))
        yield (("esc", "key"), (" leaves, and nothing is ordered", ""))


def _progress_rows(progress: ProfileProgress, width: int) -> Iterable[Line]:
    if progress.state in ("running", "merging"):
        yield plain(progress_text(progress), "strong")
        if progress.can_be_ended:
            complete = sum(rank.complete for rank in progress.ranks)
            text = f" writes the {complete} that are complete, without the others"
            yield (("w", "key"), (text, ""))
        yield (("esc", "key"), (" withdraws the order in all ranks, and writes nothing", ""))
    else:
        words = {"written": "good", "failed": "bad", "withdrawn": "warn"}
        for text in result_lines(progress):
            yield from wrap(text, width, words.get(progress.state, ""))
        if progress.state == "written":
            yield plain("ui.perfetto.dev opens it; P orders another one", "dim")
        if table := allocation_lines(progress.allocations):
            yield ()
            yield from (clip(plain(text), width) for text in table)
    yield ()
    for rank in progress.ranks:
        yield _rank_row(rank, width)


def _rank_row(rank: RankProfile, width: int) -> Line:
    tone = _TONES.get(rank.stage, "")
    return clip(((f"rank {rank.rank:<5} {rank.host:<12} ", ""), (rank_text(rank), tone)), width)


def _wrapped(line: Line, width: int) -> Sequence[Line]:
    if len(line) == 1:
        return wrap(line[0][0], width, line[0][1])
    return (clip(line, width),)
