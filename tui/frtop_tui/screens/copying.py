"""Copies what the cursor is on, or the verdict, through the terminal (OSC 52).

A terminal does not say whether it took the text. Where it is known not to, and where the key is
pressed again because nothing arrived, the text goes into a file.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from frtop_probe import atomic_file
from frtop_probe.proc import daemon_thread
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.output_path import default_path, write_unused
from frtop_tui.job.naming import printable
from frtop_tui.job.units import byte_size
from frtop_tui.screens.contributed import FeatureApp
from frtop_tui.screens.past import PastApp
from frtop_tui.text.verdict import lines_of, verdict_text
from frtop_tui.widgets.headline import job_name
from frtop_tui.widgets.lines import LineView

LARGEST: Final = 74_994
"""Bytes that xterm takes; others take more."""
AGAIN_S: Final = 10.0
"""The key pressed again within this time writes a file."""


def verdict_block(frame: Frame) -> str:
    """All verdicts with the job's name, as text; "" if there is none."""
    said = [lines_of(verdict_text(one, frame)) for one in frame.verdicts]
    return "\n".join((printable(job_name(frame)), *chain(*said))) if said else ""


def why_not_taken(size: int, environment: Mapping[str, str]) -> str:
    """Why this terminal is known not to take a text; "" if it may. May ask tmux."""
    if size > LARGEST:
        return f"terminals take {byte_size(LARGEST)} at most"
    if "TMUX" in environment:
        refuses = _tmux_setting() in ("off", "external")
        return "tmux refuses it until: tmux set -s set-clipboard on" if refuses else ""
    if "STY" in environment:
        return "screen does not pass it on"
    if environment.get("TERM_PROGRAM") == "Apple_Terminal":
        return "Terminal.app does not take it"
    return "a console has no clipboard" if environment.get("TERM") == "linux" else ""


def _tmux_setting() -> str:
    command = ("tmux", "show-options", "-sv", "set-clipboard")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


class CopyingApp(FeatureApp, PastApp, inherit_bindings=False):
    """An application whose screens can be copied from."""

    def __init__(self) -> None:
        super().__init__()
        self._copied: tuple[tuple[object, ...], float] = ((), 0.0)
        """What was copied last, and when; its text may have changed since, as ages do."""

    def action_copy(self) -> None:
        """Copies the row or pane that has the focus; the verdict from the overview."""
        frame = self.received.shown or self.source.frame()
        focused = self.focused
        text = focused.copied() if isinstance(focused, LineView) else ""
        what = "Line" if isinstance(focused, LineView) and focused.has_cursor else "Pane"
        if not text:
            text, what = verdict_block(frame), "Verdict"
        if not text:
            self.notify("Nothing to copy: there is no verdict.", timeout=4)
            return
        self.copy_to_clipboard(text)
        self.clear_notifications()  # those of the key before
        line = focused.cursor if isinstance(focused, LineView) else 0
        before, self._copied = self._copied, ((self.screen, what, line), time.monotonic())
        again = before[0] == self._copied[0] and self._copied[1] < before[1] + AGAIN_S
        # Not awaited: tmux and file systems may hang.
        self.run_worker(self._copy_or_write(text, what, frame, again=again), group="copy")

    async def _copy_or_write(self, text: str, what: str, frame: Frame, *, again: bool) -> None:
        size = len(text.encode())
        look = partial(why_not_taken, size, os.environ)
        why = "" if again else await daemon_thread.run(look, "frtop clipboard")
        if not again and not why:
            sent = f"{what} copied, {byte_size(size)}, to your terminal's clipboard."
            self.notify(f"{sent} If nothing arrives, y again writes a file.", timeout=AGAIN_S)
            return
        write = partial(_write, text, frame, self.preferences.folder)
        try:
            path = await daemon_thread.run(write, "frtop clipboard")
        except OSError as error:
            self.notify(f"Not written: {error.strerror}", severity="warning")
            return
        reason = f"No clipboard: {why}. " if why else ""
        self.notify(f"{reason}{what} written, {byte_size(size)}: {path}", timeout=AGAIN_S)


def _write(text: str, frame: Frame, folder: Path | None) -> str:
    path = default_path(frame, frame.wall_ns, ".txt", folder=folder)
    content = f"{text}\n".encode(errors="replace")
    return str(write_unused(path, partial(atomic_file.write, content=content, overwrite=False))[0])
