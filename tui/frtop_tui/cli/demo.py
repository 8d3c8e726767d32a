"""`frtop demo`: a real job, a real fault, and frtop on it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from types import FrameType
from typing import Final

from frtop_tui.cli.screen import require_terminal
from frtop_tui.demo.faults import FAULTS
from frtop_tui.demo.job import FAULT_STEP, DemoJob
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import DemoFailed
from frtop_tui.report.text import text
from frtop_tui.sources.live import LiveSource

START_S: Final = 120.0
VERDICT_S: Final = 45.0
HEALTHY_STEPS: Final = 4 * FAULT_STEP


def run(options: argparse.Namespace) -> int:
    fault = FAULTS[options.fault]
    if not options.headless:
        require_terminal("without one: frtop demo --headless")
    signal.signal(signal.SIGTERM, _interrupt)  # so that the job is taken away then, too
    signal.signal(signal.SIGHUP, _interrupt)
    with DemoJob(fault) as job:
        os.environ.update(job.environment())
        _say(f"starting 4 ranks of a small DDP training; soon {fault.story}")
        job.start()
        source = LiveSource()
        try:
            return _headless(job, source) if options.headless else _screen(job, source)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # tidying takes seconds, and must be whole
            source.close()
            _say("ending the job")


def _screen(job: DemoJob, source: LiveSource) -> int:
    from frtop_tui.app import run_app  # noqa: PLC0415 - Textual only when drawing

    _await_ranks(job, source)
    # What it would write is of a job that is made to hang; `e` writes it all the same.
    return run_app(source, auto_capture=False)


def _headless(job: DemoJob, source: LiveSource) -> int:
    _await_ranks(job, source)
    frame = _await_verdict(job, source)
    print("\n".join(text(frame)), flush=True)
    right = job.fault.explained_by(frame.verdicts)
    _say("who and why are right" if right else f"not what happened: {job.fault.story}")
    return 0 if right else 1


def _await_ranks(job: DemoJob, source: LiveSource) -> None:
    begin = time.monotonic()
    while time.monotonic() - begin < START_S:
        job.require_alive()
        if source.frame().ranks and (job.step() or job.ended()):
            _say(f"training after {time.monotonic() - begin:.1f} s")
            return
        time.sleep(0.1)
    raise DemoFailed(
        f"no rank was heard of in {START_S:.0f} s: {source.frame().problem}\n{job.output()}",
        "run it again with less load on this machine",
    )


def _await_verdict(job: DemoJob, source: LiveSource) -> Frame:
    """The frame with a confirmed verdict, or the last one when time is up."""
    step, said = -1, ""
    frozen = time.monotonic()
    while True:
        frame = source.frame()
        now = time.monotonic()
        if (seen := job.step()) != step:
            step, frozen = seen, now
            _say(f"step {step}")
        if frame.verdicts and frame.verdicts[0].headline != said:
            said = frame.verdicts[0].headline
            _say(f"{frame.verdicts[0].confidence} {now - frozen:.1f} s after the last step: {said}")
        if frame.verdicts and frame.verdicts[0].confidence == "confirmed":
            return frame
        if now - frozen > VERDICT_S or (job.fault.name == "none" and step >= HEALTHY_STEPS):
            return frame
        time.sleep(0.1)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(f"demo: {line}", file=sys.stderr, flush=True)
