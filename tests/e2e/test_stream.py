"""`frtop stream` and `frtop metrics` beside one real job that trains, hangs and ends.

Read by `json`, by `msgpack` alone, and by Prometheus' own parser.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest

from e2e.conftest import JOBS, family, own_home
from waiting import wait_for

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

Scraped = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A job of two ranks that trains until `hang` is in this folder."""
    folder = tmp_path_factory.mktemp("job")
    os.mkfifo(folder / "shard")
    with pytest.MonkeyPatch.context() as patch, own_home(patch) as home:
        job = subprocess.Popen(
            [sys.executable, "-m", "frtop_tui", "run", "--", sys.executable, "-m",
             "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             str(JOBS / "told_to_hang.py"), str(folder), "1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        try:
            wait_for(lambda: len(list(home.glob("*.ring"))) == 2, "two rings", 60)
            yield folder
        finally:
            for process in family(home):
                process.kill()
            job.kill()
            job.wait()


@pytest.fixture(scope="module", autouse=True)
def server(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Serves metrics of that job from its beginning, while other tests run."""
    command = [sys.executable, "-m", "frtop_tui", "metrics", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    yield server
    server.kill()
    server.communicate()


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
    writer = stream("--as", "msgpack", "--only", "ops", "--ranks", "1", "--groups", "default_pg")
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


def test_metrics_are_served_while_the_job_hangs_and_while_it_ends(
    folder: Path, server: subprocess.Popen[str]
) -> None:
    pytest.importorskip("prometheus_client")
    from prometheus_client.openmetrics import parser  # noqa: PLC0415 - an extra

    try:
        where = cast("IO[str]", server.stderr).readline()
        url = where.removeprefix("frtop: metrics at ").strip()
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        parse: Any = parser.text_string_to_metric_families

        def scrape_with(*sample: str, value: float = 1, more: bool = False) -> Scraped | None:
            """What is served, once it has this sample: with the value, or with more."""
            request = urllib.request.Request(url, headers=accept)
            with urllib.request.urlopen(request, timeout=10) as response:
                assert response.headers["Content-Type"].startswith("application/openmetrics-text")
                text = response.read().decode()
            found = {
                (sample.name, *sample.labels.values()): sample.value
                for family in parse(text)
                for sample in family.samples
            }
            there = found.get(sample, 0.0)
            return found if there == value or (more and there > value) else None

        ops = ("frtop_ops_total", "default_pg", "0-1")
        wait_for(lambda: scrape_with(*ops, value=21, more=True), "some training", 60, 0.3)
        (folder / "hang").touch()
        hung = wait_for(lambda: scrape_with("frtop_health", "hung"), "a hang", 60, 0.3)
        assert hung["frtop_culprits",] == 1
        assert hung["frtop_ranks", "blocked"] == 1
        assert hung[ops] > 20
        for process in family(Path(os.environ["FRTOP_DIR"])):
            if "told_to_hang.py" in " ".join(process.cmdline()):
                process.kill()
        over = wait_for(lambda: scrape_with("frtop_ranks", "dead", value=2), "the end", 60, 0.1)
        for name in ("frtop_ops_total", "frtop_waiting_seconds_total"):
            counter = (name, "default_pg", "0-1")
            assert over[counter] >= hung[counter] > 0
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == 130
        assert cast("IO[str]", server.stderr).read() == ""
    finally:
        server.kill()
