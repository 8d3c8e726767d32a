"""`frtop stream` beside a real job that trains and hangs, read by `json` and by `msgpack` alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest

from e2e.conftest import told_to_hang

pytestmark = pytest.mark.job
CONSUMER = """
import sys, msgpack
unpacker, ops = msgpack.Unpacker(), {}
while data := sys.stdin.buffer.read1(65536):
    unpacker.feed(data)
    for event in unpacker:
        if event["event"] == "op_issued" and event["rank"] == 1:
            ops[event["sequence"]] = event
        if event["event"] == "op_ended" and len(ops) > 5:
            first, last = min(ops), max(ops)
            print(sorted(ops) == list(range(first, last + 1)), event["kind"], event["took_s"] > 0)
            print(sorted(name for name in sys.modules if name in ("msgspec", "frtop_tui")))
            sys.exit()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with told_to_hang(tmp_path_factory.mktemp("job")) as folder:
        yield folder


@pytest.fixture(scope="module", autouse=True)
def writer(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Writes what happens in that job from its beginning, to nobody until a test reads it."""
    writer = stream()
    yield writer
    writer.kill()
    writer.communicate()


def stream(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "frtop_tui", "stream", "--wait", "60", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def until(lines: IO[bytes], event: str, **fields: object) -> dict[str, Any]:
    """The next such event; the test's own timeout is the deadline."""
    for line in lines:
        found: dict[str, Any] = json.loads(line)
        if found["event"] == event and all(found[name] == is_ for name, is_ in fields.items()):
            return found
    raise AssertionError(f"the stream ended before {event} {fields}")


def test_ops_are_read_with_msgpack_alone_and_a_reader_may_leave(folder: Path) -> None:
    writer = stream("--as", "msgpack", "--only", "ops", "--ranks", "1")
    assert writer.stdout is not None
    try:
        reader = subprocess.run(
            [sys.executable, "-c", CONSUMER],
            stdin=writer.stdout, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        writer.stdout.close()
        assert reader.stdout.splitlines() == ["True all_reduce True", "[]"], reader.stderr
        assert writer.wait(timeout=30) == 1
        assert cast("IO[bytes]", writer.stderr).read() == b""
    finally:
        writer.kill()
        writer.communicate()


def test_a_hang_is_told_as_it_comes_and_an_interrupt_ends_quietly(
    folder: Path, writer: subprocess.Popen[bytes]
) -> None:
    lines = cast("IO[bytes]", writer.stdout)
    head = json.loads(lines.readline())
    assert (head["event"], head["schema"], head["source"]) == ("stream", 1, "live")
    assert head["job"]["world_size"] == 2
    until(lines, "state", state="moving", rank=1)
    until(lines, "health", health="healthy")
    (folder / "hang").touch()
    blocked = until(lines, "state", state="blocked", rank=0)
    assert blocked["was"] == "moving"
    assert blocked["blocked_on"]["kind"] == "all_reduce"
    found = until(lines, "verdict", phase="begun")
    assert found["verdict"]["culprits"] == [1]
    writer.send_signal(signal.SIGINT)
    assert writer.wait(timeout=30) == 130
    assert cast("IO[bytes]", writer.stderr).read() == b""
