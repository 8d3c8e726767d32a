"""Examples in the docs read what we write, with the `msgpack` package alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.agent_host import Host
from diagnosis.scenes import Scene
from files.boxes import BoxRecorder, write_boxes
from files.test_capture import rows
from frtop_probe import keys
from frtop_probe.ring.folder import AgentFiles
from frtop_tui.files import capture
from screens.scenes import hung

DOCS = Path(__file__).parents[2] / "docs"
OURS = {"msgspec", "frtop_probe", "frtop_tui"}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host(tmp_path, monkeypatch)
    yield host
    host.close()


def run_example(
    name: str, *arguments: Path, stdin: bytes = b"", page: str = "formats.md"
) -> list[str]:
    """The lines that an example of a page prints; it imports nothing of ours."""
    (example,) = re.findall(
        rf"^```python {name}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL
    )
    program = f"{example}\nprint(sorted({OURS} & set(sys.modules)))"
    command = [sys.executable, "-W", "error", "-c", program, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    *lines, imported = done.stdout.decode().splitlines()
    assert imported == "[]"
    return lines


def test_a_capture_is_read_with_msgpack_alone(tmp_path: Path) -> None:
    frame = hung()
    capture.write(tmp_path / "x.cap", frame, {3: rows(3, begin=7)}, ())
    assert run_example("file", tmp_path / "x.cap") == [
        "capture: hung",
        *(f"{verdict.confidence} {verdict.headline}" for verdict in frame.verdicts),
        "3: all_reduce #7: 500 ns",
        "3: all_reduce #8: 500 ns",
        "3: all_reduce #9: pending",
    ]


def test_a_black_box_is_read_with_msgpack_alone(tmp_path: Path) -> None:
    scene = Scene(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    (box,) = write_boxes(tmp_path, BoxRecorder(scene).boxes())
    first, *ops = run_example("file", box)
    assert first == f"black box: {scene.hosts[0]} with 4 ranks"
    assert [line for line in ops if "pending" in line] == [
        f"{key}: all_reduce #8: pending" for key in (1, 2, 4)
    ]


def test_the_stream_of_an_agent_is_read_with_msgpack_alone(host: Host) -> None:
    rank = host.rank("wait")
    announced = host.agent()
    state, update = run_example("stream", AgentFiles.here(host.folder).card, keys.path())
    assert re.fullmatch(rf"rank 0 pid {rank.pid} groups \[.+\]", state)
    assert re.fullmatch(rf"update \d+ of {re.escape(announced.host)} has news of \d+ ranks", update)
