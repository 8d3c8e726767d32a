"""Commands and web hooks that are told of a verdict: real processes, a real server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from frtop_tui.errors import UsageError
from frtop_tui.features.watch.deliveries import Deliveries, WebHook
from frtop_tui.features.watch.lines import EventLines
from waiting import wait_for

EVENT = {"event": "confirmed", "cause": "not_entered/sleeping", "job": None}


def outcome(deliveries: Deliveries) -> dict[str, Any]:
    (result,) = wait_for(deliveries.results, "the delivery ends")
    assert not deliveries.under_way
    return result


def command(*words: str, deadline_s: float = 10.0, dry_run: bool = False) -> Deliveries:
    return Deliveries(words, None, deadline_s=deadline_s, dry_run=dry_run)


def test_a_command_gets_the_verdict_and_variables(tmp_path: Path) -> None:
    path = tmp_path / "told"
    code = "import os, sys; print(os.environ['FRTOP_JOB'], sys.stdin.read())"
    deliveries = command("sh", "-c", f'"{sys.executable}" -c "{code}" > {path}')
    assert deliveries.start(EVENT, {"FRTOP_JOB": "a b;$(c)"}) == []
    result = outcome(deliveries)
    assert (result["event"], result["ok"]) == ("command", True)
    name, _, content = path.read_text().rpartition(" {")
    assert name == "a b;$(c)"
    assert json.loads("{" + content) == EVENT


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("false",), "exit status 1"),
        (("/does/not/exist",), "cannot be run: No such file or directory"),
        (("sh", "-c", "kill -9 $$"), "ended by SIGKILL"),
    ],
)
def test_a_command_that_fails_is_said(words: tuple[str, ...], problem: str) -> None:
    deliveries = command(*words)
    deliveries.start(EVENT, {})
    result = outcome(deliveries)
    assert (result["ok"], result["problem"]) == (False, problem)


def test_a_command_is_ended_at_its_deadline_with_its_children(tmp_path: Path) -> None:
    deliveries = command("sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait", deadline_s=0.5)
    deliveries.start(EVENT, {})
    assert deliveries.under_way  # the watcher goes on meanwhile
    assert "ended after 0.5 s" in outcome(deliveries)["problem"]
    pid = (tmp_path / "pid").read_text().strip()
    wait_for(lambda: not Path(f"/proc/{pid}/cwd").exists(), "its child ends")


def test_a_dry_run_says_what_it_would_do(tmp_path: Path) -> None:
    deliveries = command("touch", str(tmp_path / "x"), dry_run=True)
    (said,) = deliveries.start(EVENT, {})
    assert said["dry_run"]
    assert said["what"] == ["touch"]  # arguments may be secrets
    assert not deliveries.under_way
    assert not list(tmp_path.iterdir())


@contextmanager
def server(*statuses: int) -> Iterator[tuple[str, list[Any]]]:
    """A web server that answers with these; its address, and what it got."""
    got: list[Any] = []
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(left.pop(0) if left else 200)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as one:
        thread = Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{one.server_port}/secret", got
        finally:
            one.shutdown()
            thread.join()


def test_a_web_hook_is_tried_again_while_the_server_is_overloaded() -> None:
    paused: list[float] = []
    with server(503, 429) as (url, got):
        assert WebHook(url, pause=paused.append).send(EVENT) == ""
    assert got == [EVENT] * 3
    assert paused == [2.0, 8.0]


@pytest.mark.parametrize("status", [302, 400, 403])
def test_a_web_hook_that_refuses_is_not_tried_again(status: int) -> None:
    paused: list[float] = []
    with server(status) as (url, got):
        assert WebHook(url, pause=paused.append).send(EVENT) == f"answered {status}"
    assert not paused
    assert len(got) == 1


def test_a_web_hook_without_a_network_says_so() -> None:
    paused: list[float] = []
    hook = WebHook("http://127.0.0.1:9/x", pause=paused.append)
    assert "not reached" in hook.send(EVENT)
    assert len(paused) == 3
    assert hook.name == "http://127.0.0.1"  # the path may be a secret


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "host/x", "https:///x"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="http"):
        WebHook(url)


@pytest.mark.parametrize(
    "url", ["http://[SECRET/", "http://host:SECRET/x", "http://127.0.0.1:9/a SECRET"]
)
def test_no_complaint_about_a_web_hook_quotes_its_path(url: str) -> None:
    try:
        said = WebHook(url, pause=lambda _: None).send(EVENT)
    except UsageError as error:
        said = str(error)
    assert said
    assert "SECRET" not in said


def test_no_line_controls_a_terminal() -> None:
    text = "\x1b]0;x\x07 \x9b2J \x7f \u202egnp \ud800 \U0001f600 \r\n\u2028"
    said: list[str] = []
    lines = EventLines(said.append)
    lines.put({"job": text})
    lines.close()
    assert said[0].endswith("\n")
    assert said[0][:-1].isprintable()
    assert json.loads(said[0]) == {"job": text}


def test_lines_go_on_after_a_full_disk_and_count_what_was_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written: list[str] = []
    full = True

    def write(text: str) -> None:
        if full:
            raise OSError(28, "No space left on device")
        written.append(text)

    lines = EventLines(write)
    lines.put({"event": "one"})
    lines.put({"event": "two"})
    said = wait_for(lambda: capsys.readouterr().err, "it is said")
    assert said == "frtop: lines are lost: No space left on device; frtop watch goes on\n"
    wait_for(lambda: lines.idle, "both are tried")
    full = False
    lines.put({"event": "three"})
    lines.close()
    assert json.loads(written[0]) == {"event": "three", "lines_lost": 2}
