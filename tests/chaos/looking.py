"""Those who look at a job besides the stream: a screen on a terminal, and a watcher."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from chaos.stream import END_S, TRACEBACK
from waiting import wait_for

ASKS: Final = "Press again to quit"
PAUSED: Final = "PAUSED,"


class Screen:
    """`frtop` in a terminal of tmux, which shows what a person would see now."""

    def __init__(self, folder: Path, command: list[str], environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, {**environment, "TERM": "xterm-256color"}
        self._socket = str(folder / "tmux")
        # tmux lets a stopped child of its own go on. What was said at the end stays to be read.
        self._script = f"{' '.join(command)}; echo $? >{folder}/screen.ended; sleep 3600"
        self.start()

    def start(self) -> None:
        """Starts one, unless one runs."""
        if self._shell() is None:
            self._ended.unlink(missing_ok=True)
            # A key may save a capture, in the current folder.
            self._tmux(
                "new-session", "-d", "-c", str(self._folder), "-x", "120", "-y", "40", self._script
            )

    def hurt(self, number: int) -> None:
        """Sends a signal to it."""
        shell = self._shell()
        for child in shell.children() if shell is not None else ():
            with suppress(psutil.Error):
                child.send_signal(number)

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def type(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    @property
    def shown(self) -> str:
        """What stands on the terminal."""
        return self._tmux("capture-pane", "-p")

    def mistake(self, dead: int | None, blind: set[int], *, sure: bool) -> str:
        """What it shows and is not true."""
        if self._ended.exists():
            status, said = self._ended.read_text().strip(), self.shown
            if TRACEBACK in said or status not in ("1", "137"):
                return f"the screen ended with {status}: {said}"
            self.close()
        self.start()
        lines = (shown := self.shown).splitlines()
        if PAUSED in "".join(lines[1:2]):  # what was typed at it had a Z
            self.type("Z")
            return "the screen is paused"
        health = lines[1].replace(",", " ").split()[:1] if len(lines) > 1 else []
        if dead is not None:
            named = health == ["DEAD"] and f"rank {dead} " in "\n".join(lines[:8])
            right = named or (not sure and health == ["UNDECIDED"])
        else:
            right = bool(blind) or health in (["HEALTHY"], ["WAITING"])
        return "" if right else f"the screen shows\n{shown}"

    def end(self) -> str:
        """Types Q, and again if it asks because it still writes; returns what is wrong with it."""
        self.type("Q")
        said = ""
        try:
            wait_for(lambda: self._ended.exists() or ASKS in self.shown, "", END_S)
            if not self._ended.exists():
                self.type("Q")
                wait_for(self._ended.exists, "", END_S)
        except AssertionError:
            said = f"the screen did not end within {END_S:.0f} s of a Q:\n{self.shown}"
        self.close()
        return said

    def close(self) -> None:
        self.hurt(signal.SIGKILL)
        self._tmux("kill-server")

    @property
    def _ended(self) -> Path:
        return self._folder / "screen.ended"

    def _shell(self) -> psutil.Process | None:
        pid = self._tmux("list-panes", "-F", "#{pane_pid}").strip()
        with suppress(psutil.Error, ValueError):
            return psutil.Process(int(pid))
        return None

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, "-f", "/dev/null", *words],
            env=self._environment, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return done.stdout


class Watch:
    """`frtop watch`: its verdicts that last, and whether it ever confirmed one that was wrong."""

    def __init__(self, folder: Path, command: list[str], environment: Mapping[str, str]) -> None:
        self._command = [*command, "--state", str(folder / "watch")]
        self._environment, self._folder = dict(environment), folder
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Starts one, unless one runs; what is new in its lines counts from here."""
        if self._process is None:
            with self._lines.open("w") as out, (self._folder / "watch.err").open("w") as err:
                self._process = subprocess.Popen(
                    self._command, env=self._environment, stdin=subprocess.DEVNULL,
                    stdout=out, stderr=err, start_new_session=True,
                )  # fmt: skip

    def hurt(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """Kills it; its state stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> str:
        """Ends it as a service does; returns what is wrong with its end."""
        if self._process is None:
            return ""
        self.hurt(signal.SIGCONT)
        self.hurt(signal.SIGTERM)
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"the watcher did not end within {END_S:.0f} s"
        self._process = None
        errors = (self._folder / "watch.err").read_text(errors="replace")
        if TRACEBACK in errors and "frtop_tui/__main__" in errors:
            return f"the watcher: {errors[-2000:]}"
        return (
            "" if status in (0, -signal.SIGTERM) else f"the watcher ended with {status}: {errors}"
        )

    @property
    def _lines(self) -> Path:
        return self._folder / "watch.lines"

    def events(self) -> list[dict[str, Any]]:
        """Its lines since its start; the last may be unfinished."""
        lines = self._lines.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines if line]

    def mistake(self, dead: int | None, blind: set[int], *, sure: bool) -> str:
        """What it says and is not true."""
        if self._process is not None and (status := self._process.poll()) is not None:
            errors = (self._folder / "watch.err").read_text(errors="replace")
            self._process = None
            if TRACEBACK in errors or status != 1:
                return f"the watcher ended with status {status}: {errors[-2000:]}"
        self.start()
        events = self.events()
        blamed = [
            sorted(one["rank"] for one in event["culprits"])
            for event in events
            if event["event"] == "confirmed"
        ]
        expected = [[dead]] if dead is not None else []
        watching = blind or any(event["event"] == "watching" for event in events)
        if (blamed == expected or not (blamed or sure)) and watching:
            return ""
        return f"the watcher says {events}"
