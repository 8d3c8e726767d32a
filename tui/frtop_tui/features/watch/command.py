"""`frtop watch`: watches all jobs unattended, until a signal ends it."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Final

from frtop_probe.garbage import Collector
from frtop_tui.cli.live import connect
from frtop_tui.connect.source import Source
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.features.watch.below import Below
from frtop_tui.features.watch.capture_folder import CaptureFolder
from frtop_tui.features.watch.deliveries import Deliveries, WebHook
from frtop_tui.features.watch.history import FILE, CulpritHistory
from frtop_tui.features.watch.history_command import chosen_folder
from frtop_tui.features.watch.job_file import JobFile, remove_old
from frtop_tui.features.watch.job_sources import JobSources
from frtop_tui.features.watch.job_watch import JobWatch, Plan
from frtop_tui.features.watch.lines import EventLines
from frtop_tui.features.watch.watcher import Watcher

STEP_S: Final = 0.25
CLOSING_S: Final = 25.0
"""How long captures and commands under way may still take after a signal to end."""
SWEEP_S: Final = 3600.0
"""How often to look for files of past jobs."""
NO_CAPTURES: Final = "none"


def run(options: argparse.Namespace) -> int:
    """Returns 0 when a signal ends it."""
    command = _command(options)
    hook = WebHook(options.post) if options.post else None
    state = _folder(options.state, "--state")
    captures = _captures(options, state)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the watcher outlives its terminal
    plan = Plan(
        options.every, options.before, captures, options.dry_run, options.kill, options.slow
    )
    deliveries = Deliveries(command, hook, deadline_s=options.deadline, dry_run=options.dry_run)
    lines = EventLines()
    below = Below(options.below) if options.below is not None else None
    watcher = Watcher(
        JobSources(partial(_open, options), options.job),
        deliveries,
        lines,
        is_wanted=below.has_started if below is not None else lambda _: True,
        file_of=lambda one: JobFile(state, one.key),
        new_watch=lambda one, file, say: JobWatch(
            one.source, file, plan, deliveries, history=CulpritHistory(state / FILE), say=say
        ),
    )
    try:
        watcher.say({"event": "started", "pid": os.getpid(), "state": str(state)})
        sweep_at, garbage = 0.0, Collector()
        while not ended.wait(STEP_S) and (below is None or below.lives):
            if time.monotonic() >= sweep_at:
                sweep_at = time.monotonic() + SWEEP_S
                remove_old(state)
            watcher.step()
            garbage.tick()
        _finish(watcher)
        watcher.say({"event": "stopped"})
    finally:
        watcher.close()
        lines.close()
    return 0


def _finish(watcher: Watcher) -> None:
    """Waits for captures and commands under way; a second signal ends the wait."""
    again = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: again.set())
    for _ in range(int(CLOSING_S / STEP_S)):
        if not watcher.busy or again.wait(STEP_S):
            return
        watcher.step()


def _open(options: argparse.Namespace) -> Source:
    """A new source; its job is chosen later."""
    return connect(argparse.Namespace(**{**vars(options), "job": None}))


def _command(options: argparse.Namespace) -> list[str]:
    """The words of `--exec`.

    Raises:
        UsageError: there is no such program, or the text cannot be split into words.
    """
    if not options.command:
        return []
    if options.shell:
        return ["/bin/sh", "-c", options.command]
    try:
        words = shlex.split(options.command)
    except ValueError as error:
        raise UsageError(f"--exec: {error}", "quote it for a shell") from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(
            f"--exec: there is no program {words[0]!r}" if words else "--exec names no program",
            "give its path; --shell runs it by sh -c",
        )
    return words


def _captures(options: argparse.Namespace, state: Path) -> CaptureFolder | None:
    if options.captures == NO_CAPTURES:
        return None
    path = _folder(options.captures or str(state / "captures"), "--captures")
    return CaptureFolder(path, state, most=options.keep, most_bytes=options.keep_bytes)


def _folder(named: str | None, option: str) -> Path:
    """The folder; it is created if it is missing.

    Raises:
        FrtopError: there is none, and it cannot be created.
    """
    folder = chosen_folder(named, option)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = "not a folder" if isinstance(error, FileExistsError) else error.strerror
        raise FrtopError(f"{folder}: {reason}", f"name another folder with {option}") from error
    return folder
