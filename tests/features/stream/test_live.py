"""`frtop stream` beside a real job that trains and hangs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, cast

import pytest

from features.warm_job import told_to_hang

pytestmark = pytest.mark.job


def until(lines: IO[bytes], event: str, **fields: object) -> dict[str, Any]:
    """The next such event; the test's own timeout is the deadline."""
    for line in lines:
        found: dict[str, Any] = json.loads(line)
        if found["event"] == event and all(found[name] == is_ for name, is_ in fields.items()):
            return found
    raise AssertionError(f"the stream ended before {event} {fields}")


def test_ops_and_a_hang_are_told_as_they_come_and_an_interrupt_ends_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "frtop_tui", "stream", "--wait", "60", "--only",
               "ops,states,verdicts", "--gauges", "1"]  # fmt: skip
    with (
        told_to_hang(tmp_path),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer,
    ):
        try:
            lines = cast("IO[bytes]", writer.stdout)
            head = json.loads(lines.readline())
            assert (head["event"], head["schema"], head["source"]) == ("stream", 1, "live")
            assert head["job"]["world_size"] == 2
            until(lines, "state", state="moving", rank=1)
            until(lines, "health", health="healthy")
            issued = [until(lines, "op_issued", rank=1)["sequence"] for _ in range(6)]
            assert issued == list(range(issued[0], issued[0] + 6))
            ended = until(lines, "op_ended", rank=1)
            assert ended["kind"] == "all_reduce"
            assert ended["took_s"] > 0
            host = until(lines, "gauges", kind="host")
            assert host["values"]["mem_available"] < host["values"]["mem_total"]
            assert until(lines, "gauges", kind="rank", ranks="0")["values"]["mem"] > 1_000_000
            (tmp_path / "hang").touch()
            blocked = until(lines, "state", state="blocked", rank=0)
            assert blocked["was"] == "moving"
            assert blocked["blocked_on"]["kind"] == "all_reduce"
            found = until(lines, "verdict", phase="begun")
            assert found["verdict"]["culprits"] == [1]
            writer.send_signal(signal.SIGINT)
            assert writer.wait(timeout=30) == 130
            assert cast("IO[bytes]", writer.stderr).read() == b""
        finally:
            writer.kill()
