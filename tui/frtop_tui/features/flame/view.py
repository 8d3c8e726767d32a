"""Stacks of ranks, sampled for ten seconds from outside, as a flame tree."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe.features.flame.messages import SampleStacks
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.flame.pane import FlamePane
from frtop_tui.features.flame.words import SampledStacks
from frtop_tui.job.naming import folded
from frtop_tui.job.units import counted
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import Do, FeatureMessage

COST: Final = "nothing stops: py-spy reads the memory of the process, 100 times a second"


class SaveSamples(FeatureMessage):
    """Write sampled stacks to files."""

    def __init__(self, samples: SampledStacks) -> None:
        super().__init__()
        self.samples = samples


class FlameScreen(FrameScreen):
    """Samples when it opens, and again on `r`."""

    AUTO_FOCUS = "#flame"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("r", "sample_again", "sampled again", tooltip="sample for ten seconds again",
                id="flame.again"),
        Binding("s", "save", "save", tooltip="as folded stacks, and for speedscope",
                id="flame.save"),
    ]  # fmt: skip

    def __init__(self, marked: set[int], ranks: tuple[int, ...]) -> None:
        super().__init__(marked)
        self.ranks = ranks
        self.samples = SampledStacks()
        self._asked = False

    @property
    def crumb(self) -> str:  # type: ignore[override]  # names the ranks
        return f"sampled stacks of {folded(self.ranks)}"

    def panes(self) -> ComposeResult:
        yield FlamePane()

    def request(self, frame: Frame) -> None:
        """Asks once, with the first frame that has the ranks."""
        if not self._asked and frame.ranks and not self.why_unavailable("take"):
            self._asked = True
            self.post_message(Do(SampleStacks(), self.ranks))

    def take_news(self) -> None:
        samples: SampledStacks = self.news["flame"]
        mine = {*samples.waiting, *(one.rank for one in samples.ranks)}
        if mine <= set(self.ranks):
            self.samples = samples

    def draw(self, frame: Frame) -> None:
        samples, pane = self.samples, self.query_one(FlamePane)
        doing = ""
        if samples.waiting:
            left = max(0.0, 10.0 - (frame.now_ns - samples.since_ns) / 1e9)
            doing = f"sampling {folded(samples.waiting)}, about {left:.0f} s left; {COST}"
        elif not samples.ranks:
            doing = self.why_unavailable("take") or f"sampling; {COST}"
        missed = sum(one.missed for one in samples.ranks)
        title = f"sampled stacks of {folded(self.ranks)}"
        if samples.ranks and missed:
            title += f"; {counted(missed, 'sample')} could not be read"
        pane.entitle(title)
        pane.show(samples, doing)

    def action_sample_again(self) -> None:
        if self.check_available("take"):
            self.post_message(Do(SampleStacks(), self.ranks))

    def action_save(self) -> None:
        if any(one.stacks for one in self.samples.ranks):
            self.post_message(SaveSamples(self.samples))
        else:
            self.app.notify("Nothing to save: no stack was sampled yet.", timeout=4)
