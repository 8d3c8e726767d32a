"""Reports a verdict to a command or web hook, each in its own thread, with a deadline.

The result is an event like any other. A command that fails is not run again; a web hook
that does not answer is retried after a pause.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from frtop_probe.proc import daemon_thread
from frtop_tui.errors import UsageError
from frtop_tui.features.watch.job_end import JobEnd, end_ranks

MOST_AT_ONCE: Final = 16
GRACE_S: Final = 2.0
"""Time between SIGTERM and SIGKILL for a command that is past its deadline."""
PAUSES_S: Final = (2.0, 8.0, 30.0)
"""The pauses before the second, third and fourth attempt."""
ANSWER_S: Final = 10.0
"""How long each step of one attempt may take."""
_TRIED_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class Deliveries:
    """Used from the watcher's thread; only commands and web hooks run in other threads."""

    def __init__(
        self, command: Sequence[str], hook: WebHook | None, *, deadline_s: float, dry_run: bool
    ) -> None:
        """Args: command: program and arguments, empty for none; deadline_s: for the command."""
        self._command = list(command)
        self._hook = hook
        self._deadline_s = deadline_s
        self._dry_run = dry_run
        self._running = 0
        self._results: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    @property
    def under_way(self) -> bool:
        return self._running > 0

    def start(
        self, event: dict[str, Any], variables: Mapping[str, str], end: JobEnd | None = None
    ) -> list[dict[str, Any]]:
        """Starts the deliveries of an event; returns events about those that were not started.

        With `end`, the ranks are ended after the command, which may look at them.
        """
        where = {"job": event.get("job"), "cause": event.get("cause")}
        wanted: list[tuple[str, Any, Any]] = []
        command_over = threading.Event()
        if self._command:
            wanted.append(
                ("command", self._command[:1], lambda: self._run(event, variables, command_over))
            )
        else:
            command_over.set()
        if end is not None:
            pids = [one.pid for one in end.ranks]
            wanted.append(("killed", pids, lambda: self._end(end, command_over)))
        if self._hook is not None:
            hook = self._hook
            wanted.append(("post", hook.name, lambda: hook.send(event)))
        said = []
        for name, what, work in wanted:
            if self._dry_run:
                said.append({"event": name, **where, "what": what, "dry_run": True})
            elif self._running >= MOST_AT_ONCE:
                problem = f"{self._running} others are still running"
                said.append({"event": name, **where, "what": what, "ok": False, "problem": problem})
            else:
                self._begin({"event": name, **where, "what": what}, work)
        return said

    def results(self) -> list[dict[str, Any]]:
        """Results of the deliveries that ended since the last call."""
        found = []
        while not self._results.empty():
            found.append(self._results.get())
            self._running -= 1
        return found

    def _begin(self, about: dict[str, Any], work: Any) -> None:
        def run() -> None:
            begun = time.monotonic()
            try:
                problem = work()
            except Exception as error:  # noqa: BLE001 - a thread's boundary: it is reported
                problem = f"frtop itself failed: {type(error).__name__}"  # its text may be a secret
            took = round(time.monotonic() - begun, 1)
            result = {
                "ok": not problem,
                "took_s": took,
                **({"problem": problem} if problem else {}),
            }
            self._results.put({**about, **result})

        self._running += 1
        daemon_thread.start(run, "frtop watch delivery")

    def _end(self, end: JobEnd, command_over: threading.Event) -> str:
        command_over.wait(self._deadline_s + 3 * GRACE_S)
        return "; ".join(filter(None, (end_ranks(end.ranks), end.problem)))

    def _run(
        self, event: dict[str, Any], variables: Mapping[str, str], command_over: threading.Event
    ) -> str:
        """Why the command failed, "" if it succeeded."""
        try:
            return self._run_command(event, variables)
        finally:
            command_over.set()

    def _run_command(self, event: dict[str, Any], variables: Mapping[str, str]) -> str:
        try:
            child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=sys.stderr, stderr=sys.stderr,
                env={**os.environ, **variables}, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return f"cannot be run: {getattr(error, 'strerror', None) or error}"
        try:
            child.communicate(json.dumps(event).encode() + b"\n", timeout=self._deadline_s)
        except subprocess.TimeoutExpired:
            _end(child)
            return f"ended after {self._deadline_s:g} s: it was not done by then"
        if child.returncode < 0:
            return f"ended by {signal.Signals(-child.returncode).name}"
        return f"exit status {child.returncode}" if child.returncode else ""


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the command and all processes of its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: a redirected POST becomes a GET without content, and seems to succeed."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class WebHook:
    """One http or https address."""

    def __init__(self, url: str, *, pause: Callable[[float], None] = time.sleep) -> None:
        """Raises `UsageError` if `url` is no such address."""
        usage = UsageError("--post takes an address of http or https", "--post https://host/path")
        try:
            parts = urllib.parse.urlsplit(url)
            _ = parts.port
        except ValueError:
            raise usage from None  # its text quotes the address
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise usage
        self.name = f"{parts.scheme}://{parts.hostname}"
        """The address without its path, which is the secret of many hooks."""
        self._url = url
        self._pause = pause
        self._opener = urllib.request.build_opener(_NoRedirect)

    def send(self, event: dict[str, Any]) -> str:
        """Why the server did not accept it, "" if it did."""
        content = json.dumps(event).encode()
        problem, final = self._once(content)
        for pause_s in PAUSES_S:
            if not problem or final:
                break
            self._pause(pause_s)
            problem, final = self._once(content)
        return problem

    def _once(self, content: bytes) -> tuple[str, bool]:
        """Why one attempt failed, and whether another would fail too."""
        headers = {"Content-Type": "application/json", "User-Agent": "frtop"}
        request = urllib.request.Request(self._url, content, headers)  # noqa: S310 - checked above
        try:
            with self._opener.open(request, timeout=ANSWER_S):
                return "", True
        except urllib.error.HTTPError as error:
            error.close()
            return f"answered {error.code}", error.code not in _TRIED_AGAIN
        except urllib.error.URLError as error:
            return f"not reached: {error.reason}", False
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The text of some errors quotes the address.
            why = getattr(error, "strerror", None) or type(error).__name__
            return f"not reached: {why}", isinstance(error, ValueError)
