"""Programs of a host, and programs in memory."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from frtop_probe.pipe import program_file
from frtop_probe.proc import tool_process
from waiting import wait_for


@pytest.fixture(autouse=True)
def nothing_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_process, "_sent", {})


@pytest.mark.parametrize(
    ("prints", "serves"),
    [
        ("echo py-spy 0.4.1", True),
        ("echo py-spy 1.0.0", True),
        ("echo py-spy 0.3.14", False),
        ("echo pyenv: py-spy: command not found; exit 127", False),
        ("exit 0", False),
    ],
)
def test_a_py_spy_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, serves: bool
) -> None:
    path = tmp_path / "py-spy"
    path.write_text(f"#!/bin/sh\n{prints}\n")
    path.chmod(0o755)
    monkeypatch.setattr(tool_process, "find", lambda name: str(tmp_path / name))
    assert program_file.has_py_spy() is serves
    path.unlink()
    assert not program_file.has_py_spy()


async def test_a_program_that_was_sent_is_taken_before_others(tmp_path: Path) -> None:
    assert "pip install" in tool_process.why_missing("no-such")
    tool_process.expect("no-such")
    assert tool_process.find("no-such") is None
    assert "on its way" in tool_process.why_missing("no-such")
    descriptor = program_file.make("no-such", Path("/bin/sleep").read_bytes())
    tool_process.provide("no-such", descriptor)
    path = tool_process.find("no-such")
    assert path is not None
    child = await tool_process.start(path, "60")
    try:
        shown = Path(f"/proc/{child.pid}/cmdline")
        words = wait_for(shown.read_bytes, "exec is over, and its words are in place")
        assert words.split(b"\0")[:2] == [b"no-such", b"60"]
    finally:
        await tool_process.end(child)
        os.close(descriptor)


def test_a_kernel_that_runs_nothing_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert program_file.why_none_runs() == ""

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(subprocess, "run", forbidden)
    assert "Permission denied" in program_file.why_none_runs()
    monkeypatch.delattr(os, "memfd_create")
    assert "cannot make a file in memory" in program_file.why_none_runs()
