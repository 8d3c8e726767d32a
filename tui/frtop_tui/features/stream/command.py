"""`frtop stream`: sends what happens in a job to other programs, as events."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from frtop_probe.garbage import Collector
from frtop_tui.cli.file_options import open_files
from frtop_tui.cli.live import AppearanceTimer, connected, require_job
from frtop_tui.cli.output import show_progress
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.features.stream.events import SCHEMA, EventsLost, StreamEnd, StreamEvent, StreamHead
from frtop_tui.features.stream.frame_events import FrameEvents, shown_job
from frtop_tui.features.stream.gauge_events import GaugeEvents
from frtop_tui.features.stream.op_events import OpEvents
from frtop_tui.features.stream.output import ENCODERS, EventOutput
from frtop_tui.features.stream.verbs import EVERY_S
from frtop_tui.job.unix_times import Timeline
from frtop_tui.statistics.wanted import StatisticsWanted

if TYPE_CHECKING:
    from frtop_tui.connect.live import LiveSource
    from frtop_tui.connect.op_follower import FollowedOps

MOST_RANKS: Final = 16
"""To stream the ops of more ranks, name them with `--rank`."""
LAST_S: Final = 1.0
"""After an interrupt, the last events must be written within this time."""
PAUSE_S: Final = 0.05


def run(options: argparse.Namespace) -> int:
    """Returns 0 at the end of a recorded job; streams a live job until somebody ends it."""
    timeline = Timeline()
    if options.gauges is not None:
        options.only = tuple(dict.fromkeys((*options.only, "gauges")))
    events = FrameEvents(timeline, options.only, options.rank)
    return (_recorded if options.paths else _live)(options, timeline, events)


def _recorded(options: argparse.Namespace, timeline: Timeline, events: FrameEvents) -> int:
    frame = open_files(options)
    timeline.begin(frame)
    output = _output(options)
    for event in _events_of_file(frame, options, timeline, events):
        output.put(event, patiently=True)
    output.close()
    if output.failure is not None:
        raise output.failure
    return 0


def _events_of_file(
    frame: Frame, options: argparse.Namespace, timeline: Timeline, events: FrameEvents
) -> Iterator[StreamEvent]:
    """All events in a file: ops first, because they led to the state at its end."""
    yield _head(frame, options, timeline)
    if "ops" in options.only:
        ops = OpEvents(frame, timeline)
        for rank, view in frame.ranks.items():
            if options.rank is None or rank in options.rank:
                yield from ops.recorded(view)
    if "gauges" in options.only:
        yield from _gauges(options, timeline).recorded(frame)
    yield from events.of(frame)
    yield StreamEnd(at_s=timeline.unix_s(frame.now_ns), reason="recorded")


def _live(options: argparse.Namespace, timeline: Timeline, events: FrameEvents) -> int:
    with connected(options, judges="verdicts" in options.only) as source:
        if "gauges" in options.only:
            source.want_statistics(StatisticsWanted(), whom="gauges")
        frame = _first(source, options.wait)
        show_progress("")
        if "ops" in options.only:
            _follow(source, frame, options)
        gauges = _gauges(options, timeline) if "gauges" in options.only else None
        timeline.begin(frame)
        output = _output(options)
        try:
            output.put(_head(frame, options, timeline))
            _pump(source, output, timeline, events, gauges)
        finally:
            output.close(LAST_S)
    return 0


def _first(source: LiveSource, wait_s: float) -> Frame:
    """The first frame with a job.

    What lasts may pass: an agent or a host comes back, a job of this name begins. So nothing but
    the time ends the waiting.

    Raises:
        FrtopError: no job appeared within `wait_s`; says why.
    """
    timer = AppearanceTimer()
    while True:
        frame = source.frame()
        if frame.job is not None and frame.ranks:
            return frame
        problem, is_over = frame.problem, timer.waited_s > wait_s
        if problem is not None and problem.internal:
            raise FrtopError(problem.text, problem.next)
        try:
            timer.require_visible(frame)
        except FrtopError:
            if is_over:
                raise
        if is_over:
            require_job(frame)
            raise FrtopError(
                problem.text if problem else f"no job was found in {wait_s:.0f} s",
                (problem and problem.next) or "`frtop diagnose` shows why; --wait waits longer",
            )
        show_progress("waiting for a job")
        time.sleep(PAUSE_S)


def _follow(source: LiveSource, frame: Frame, options: argparse.Namespace) -> None:
    world = max(len(frame.ranks), frame.coverage.expected)
    if options.rank is None and world > MOST_RANKS:
        raise UsageError(
            f"ops of {world} ranks are more than a stream should carry",
            "name those that you need: --rank 0-3; or leave out ops: --only states,verdicts",
        )
    source.follow_ops(options.rank)


def _gauges(options: argparse.Namespace, timeline: Timeline) -> GaugeEvents:
    return GaugeEvents(timeline, options.gauges or EVERY_S)


def _pump(
    source: LiveSource,
    output: EventOutput,
    timeline: Timeline,
    events: FrameEvents,
    gauges: GaugeEvents | None,
) -> None:
    """Runs until the reader leaves, or somebody interrupts frtop."""
    last: Frame | None = None
    held: list[FollowedOps] = []
    garbage = Collector()
    while True:
        garbage.tick()
        if output.failure is not None:
            raise output.failure
        frame = source.frame()
        if frame is last:
            time.sleep(PAUSE_S)
            continue
        if frame.problem is not None and frame.problem.internal:
            raise FrtopError(frame.problem.text, frame.problem.next)
        last, at_s = frame, timeline.unix_s(frame.now_ns)
        if lost := output.take_lost():
            output.put(EventsLost(at_s=at_s, why="reader", counts=lost))
            events.forget()
        for event in events.of(frame):
            output.put(event)
        for event in gauges.of(frame) if gauges is not None else ():
            output.put(event)
        # These ops came before this frame, which knows their groups.
        for event in OpEvents(frame, timeline).followed(held):
            output.put(event)
        held, unfit = source.take_ops()
        if unfit:
            output.put(EventsLost(at_s=at_s, why="frtop", counts={"op": unfit}))


def _head(frame: Frame, options: argparse.Namespace, timeline: Timeline) -> StreamHead:
    from importlib import metadata  # noqa: PLC0415 - slow, and for this verb only

    from frtop_probe.ring.rank_ranges import fold  # noqa: PLC0415

    return StreamHead(
        at_s=timeline.unix_s(frame.now_ns),
        schema=SCHEMA,
        version=metadata.version("frtop"),
        source=frame.recorded.kind if frame.recorded is not None else "live",
        job=shown_job(frame),
        only=tuple(options.only),
        ranks="" if options.rank is None else fold(options.rank),
    )


def _output(options: argparse.Namespace) -> EventOutput:
    sys.stdout.flush()
    return EventOutput(sys.stdout.fileno(), ENCODERS[options.format])
