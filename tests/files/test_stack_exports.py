"""Stacks for speedscope, flame graphs and py-spy's readers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from files.test_recorded_bytes import BOXES
from frtop_tui.cli import main
from frtop_tui.errors import NotWritten
from frtop_tui.files.formats.stack_files import collapsed, pyspy_dumps, speedscope
from frtop_tui.files.formats.writing import write_export
from frtop_tui.files.loader import open_paths
from screens.scenes import hung


def test_collapsed_has_one_line_per_distinct_stack() -> None:
    lines = collapsed(hung()).decode().splitlines()
    assert len(lines) == 2
    stacks = {stack: int(count) for stack, _, count in (line.rpartition(" ") for line in lines)}
    assert sorted(stacks.values()) == [1, 4]
    for stack in stacks:
        frames = stack.split(";")
        assert frames[0] == "<module> (train.py:310)"  # outermost first
    assert any(stack.endswith("wait (threading.py:359)") for stack in stacks)


def test_speedscope_has_all_ranks_together_and_each() -> None:
    found = json.loads(speedscope(hung()))
    together, *each = found["profiles"]
    assert sorted(together["weights"]) == [1, 4]
    assert together["endValue"] == 5
    assert [one["name"] for one in each] == [f"rank {n}" for n in (0, 1, 36, 37, 38)]
    frames = found["shared"]["frames"]
    for profile in found["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= place < len(frames) for one in profile["samples"] for place in one)
    keys = [(one["name"], one["file"], one.get("line")) for one in frames]
    assert len(keys) == len(set(keys))


def test_what_pyspy_would_have_written_is_read_back(tmp_path: Path) -> None:
    frame = hung()
    write_export(tmp_path / "stacks", frame, "pyspy", over=False)
    found = open_paths([tmp_path / "stacks"])
    assert sorted(found.ranks) == [0, 1, 36, 37, 38]
    for rank, view in found.ranks.items():
        main_stack, known = view.main_stack, frame.ranks[rank].main_stack
        assert main_stack is not None
        assert known is not None
        assert [one.function for one in main_stack.frames] == [one.function for one in known.frames]


def test_the_objects_have_the_keys_of_pyspys_own() -> None:
    program = "import time\ndef rest():\n    time.sleep(60)\nrest()"
    with subprocess.Popen([sys.executable, "-c", program]) as sleeper:
        try:
            command = [str(Path(sys.executable).with_name("py-spy")), "dump", "--json",
                       "--nonblocking", "--pid", str(sleeper.pid)]  # fmt: skip
            end = time.monotonic() + 30
            while True:
                done = subprocess.run(command, capture_output=True, timeout=30, check=False)
                if done.returncode == 0 and b"rest" in done.stdout:
                    break
                assert time.monotonic() < end, done.stderr
        finally:
            sleeper.kill()
    theirs = json.loads(done.stdout)
    ours = json.loads(pyspy_dumps(hung())["rank_0.pyspy.json"])
    assert ours[0].keys() == theirs[0].keys()
    assert ours[0]["frames"][0].keys() == theirs[0]["frames"][0].keys()


def test_without_stacks_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    frame = hung()
    bare = {rank: replace(view, snapshot=None) for rank, view in frame.ranks.items()}
    with pytest.raises(NotWritten, match="there are no stacks"):
        speedscope(replace(frame, ranks=bare))
    assert main(["export", str(BOXES[0]), "--format", "pyspy", "-o", "-"]) == 2
    assert "name it: -o FOLDER" in capsys.readouterr().err
