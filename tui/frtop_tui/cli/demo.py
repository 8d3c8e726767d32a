"""`frtop demo`: starts a real job with a real fault, and shows it."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

from frtop_tui.cli.output import stderr_width
from frtop_tui.cli.screen import require_terminal
from frtop_tui.connect.agent_start import start_agent
from frtop_tui.connect.live import LiveSource
from frtop_tui.demo.faults import FAULTS, SLOW
from frtop_tui.demo.job import FAULT_STEP, DemoJob
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import DemoFailed, NoAgent, UsageError
from frtop_tui.statistics.wanted import StatisticsWanted
from frtop_tui.text.plain import text

if TYPE_CHECKING:
    from frtop_tui.demo.scripted.job import ScriptedJob

START_S: Final = 120.0
VERDICT_S: Final = 45.0
SLOW_VERDICT_S: Final = 100.0
"""With thousands of ranks, statistics are searched for stragglers every 25 s."""
HEALTHY_STEPS: Final = 4 * FAULT_STEP
_OWN: Final = ("FRTOP_DIR", "FRTOP_KEY_FILE")
"""Variables that keep a demo apart from the user's jobs."""


def run(options: argparse.Namespace) -> int:
    if options.ranks is not None:
        return _run_scripted(options)
    if options.fault in SLOW:
        raise UsageError(
            f"{options.fault} is a fault of scripted ranks",
            f"name how many: frtop demo --fault {options.fault} --ranks 64",
        )
    fault = FAULTS[options.fault]
    if not options.headless:
        require_terminal("frtop demo --headless")
    _end_with_the_job()
    with DemoJob(fault, prepared=not options.unprepared) as job:
        os.environ.update(job.environment())
        how = ", without the recorder" if options.unprepared else ""
        _print(f"starting a small DDP training on 4 ranks{how}; fault: {fault.summary}")
        if job.prepared:
            own = " ".join(f"{name}={shlex.quote(job.environment()[name])}" for name in _OWN)
            _print(f"`frtop jobs` does not list it; to see it from another terminal: {own} frtop")
        job.start()
        if options.unprepared and (problem := start_agent()) is not None:
            raise NoAgent(problem.text, problem.next)
        with _closing(LiveSource(job=job.run_id)) as source:
            return _headless(job, source) if options.headless else _screen(job, source)


def _run_scripted(options: argparse.Namespace) -> int:
    """Shows scripted ranks: real messages, but no training."""
    from frtop_tui.demo.scripted.culprit import SUPPORTED  # noqa: PLC0415 - only with --ranks
    from frtop_tui.demo.scripted.job import ScriptedJob  # noqa: PLC0415

    if options.unprepared or options.fault not in SUPPORTED:
        what = "--unprepared" if options.unprepared else f"the fault {options.fault}"
        raise UsageError(f"{what} needs a real job", "leave out --ranks")
    if not options.headless:
        require_terminal("frtop demo --ranks N --headless")
    _end_with_the_job()
    with ScriptedJob(options.ranks, options.fault) as job:
        _print(f"starting the agents of {options.ranks:,} scripted ranks; no torch, no training")
        with _closing(LiveSource(agents=job.start())) as source:
            if options.headless:
                return _scripted_headless(job, source)
            from frtop_tui.app import run_app  # noqa: PLC0415 - Textual only when drawing

            return run_app(source, auto_capture=False, ends="The job of the demo")


def _end_with_the_job() -> None:
    """Makes signals interrupt us, so that we also end the job."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


@contextmanager
def _closing(source: LiveSource) -> Iterator[LiveSource]:
    """Closes the source at the end, without interruption: ending the job takes seconds."""
    try:
        yield source
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        source.close()
        _print("ending the job")


def _scripted_headless(job: ScriptedJob, source: LiveSource) -> int:
    """Prints the verdict; 0 if it names only the culprit, or no rank of a healthy job."""
    script = job.script
    source.want_statistics(StatisticsWanted(), whom="verdicts")
    most_s = SLOW_VERDICT_S if script.fault in SLOW else VERDICT_S
    end_ns = script.fault_ns + int(most_s * 1e9)
    verdicts_wanted = script.fault != "none"
    while True:
        frame = source.frame()
        confirmed = bool(frame.verdicts) and frame.verdicts[0].confidence == "confirmed"
        if (confirmed and verdicts_wanted) or time.monotonic_ns() > end_ns:
            break
        time.sleep(0.1)
    print("\n".join(text(frame)), flush=True)
    named = {rank for verdict in frame.verdicts for rank in verdict.culprits}
    if script.fault == "mismatch":  # its sides are groups of ranks; here one rank is alone
        named |= {side[0] for one in frame.verdicts for side in one.parties if len(side) == 1}
    right = named == ({script.culprit} if verdicts_wanted else set())
    return _say(right, f"rank {script.culprit}")


def _say(right: bool, expected: str) -> int:
    _print("the verdict is right" if right else f"the verdict is wrong; right is: {expected}")
    return 0 if right else 1


def _screen(job: DemoJob, source: LiveSource) -> int:
    from frtop_tui.app import run_app  # noqa: PLC0415 - Textual only when drawing

    _wait_for_ranks(job, source)
    # A demo leaves no automatic capture in the user's folder; `e` still captures.
    return run_app(source, auto_capture=False, ends="The job of the demo")


def _headless(job: DemoJob, source: LiveSource) -> int:
    _wait_for_ranks(job, source)
    frame = _wait_for_verdict(job, source)
    print("\n".join(text(frame)), flush=True)
    right = job.fault.explained_by(frame.verdicts, prepared=job.prepared)
    return _say(right, job.fault.summary)


def _wait_for_ranks(job: DemoJob, source: LiveSource) -> None:
    begin = time.monotonic()
    while time.monotonic() - begin < START_S:
        job.require_alive()
        if source.frame().ranks and (job.step() or job.ended()):
            _print(f"training after {time.monotonic() - begin:.1f} s")
            return
        time.sleep(0.1)
    raise DemoFailed(
        f"no rank reported in {START_S:.0f} s: {source.frame().problem}\n{job.output()}",
        "run it again with less load on this machine",
    )


def _wait_for_verdict(job: DemoJob, source: LiveSource) -> Frame:
    """The first frame with a confirmed verdict, or the last one when time is up."""
    step, headline = -1, ""
    last_step = time.monotonic()
    while True:
        frame = source.frame()
        now = time.monotonic()
        if (current := job.step()) != step:
            step, last_step = current, now
            _print(f"step {step}")
        waited = now - last_step
        if frame.verdicts and frame.verdicts[0].headline != headline:
            headline = frame.verdicts[0].headline
            confidence = frame.verdicts[0].confidence
            _print(f"{confidence} {waited:.1f} s after the last step: {headline}")
        if frame.verdicts and frame.verdicts[0].confidence == "confirmed":
            return frame
        if waited > VERDICT_S or (job.fault.name == "none" and step >= HEALTHY_STEPS):
            return frame
        time.sleep(0.1)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _print(line: str) -> None:
    """Prints a line of progress; in a terminal it breaks between words."""
    text = f"demo: {line}"
    if sys.stderr.isatty():
        text = textwrap.fill(
            text,
            stderr_width(),
            subsequent_indent="      ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    print(text, file=sys.stderr, flush=True)
