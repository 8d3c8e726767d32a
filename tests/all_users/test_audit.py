"""The audit: lines, their bounds, and what happens when they cannot be written."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from frtop_probe.all_users import audit, syslog_socket
from frtop_probe.all_users.audit import AuditLog, AuditProblem, line_of
from frtop_probe.all_users.syslog_socket import SyslogSocket
from waiting import DEADLINE_S


def a_line(**more: object) -> dict[str, object]:
    return {
        **line_of(
            who="bob \x1b[31m", key="frtop_x", right="read", request="stacks", host="node3",
            ranks=[("ann", 4711, 3)],
        ),
        **more,
    }  # fmt: skip


async def test_a_line_says_who_looked_at_what(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    await log.write(a_line())
    await log.write(line_of(
        who="bob", key="k", right="", request="data", host="h", ranks=[("ben", 1, -1)],
        refused="the key may not see this user's ranks",
    ))  # fmt: skip
    text = log.path.read_text()
    assert "\x1b" not in text
    first, second = map(json.loads, text.splitlines())
    assert first["ranks"] == [{"user": "ann", "pid": 4711, "rank": 3}]
    assert (first["allowed"], second["allowed"]) == (True, False)
    assert second["why"] == "the key may not see this user's ranks"
    assert first["time"].endswith("Z")
    assert log.path.stat().st_mode & 0o777 == 0o600


async def test_the_file_is_bounded_and_the_oldest_lines_go(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", max_bytes=1000, older=2)
    for number in range(40):
        await log.write(a_line(number=number))
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    lines = [
        json.loads(line)["number"]
        for name in reversed(files)
        for line in (tmp_path / name).read_text().splitlines()
    ]
    assert lines == list(range(lines[0], 40))


@pytest.fixture
def logger(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "logger"))
        one.settimeout(DEADLINE_S)
        yield one


async def test_a_line_for_syslog_has_as_many_ranks_as_fit(
    logger: socket.socket, tmp_path: Path
) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", also=SyslogSocket(tmp_path / "logger"))
    line = line_of(who="bob\n", key="k", right="read", request="look", host="h",
                   ranks=[("ann", number, number) for number in range(600)])  # fmt: skip
    await log.write(line)
    data = logger.recv(1 << 20)
    assert data.startswith(b"<86>frtop-audit[%d]: {" % os.getpid())
    assert len(data) < 8192, "more is cut by rsyslog"
    assert b"\n" not in data
    found = json.loads(data.partition(b": ")[2])
    assert len(found["ranks"]) + found["more_ranks"] == 600
    assert len(json.loads(log.path.read_text())["ranks"]) == 512


async def test_a_logger_that_comes_back_has_the_line(logger: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "logger").rename(tmp_path / "away")
    log = AuditLog(tmp_path / "audit.jsonl", also=SyslogSocket(tmp_path / "logger"))
    writing = asyncio.create_task(log.write(a_line()))
    await asyncio.sleep(0.2)
    assert not writing.done()
    (tmp_path / "away").rename(tmp_path / "logger")
    await writing
    assert b'"who":"bob' in logger.recv(1 << 16)


async def test_a_line_that_no_logger_takes_is_not_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syslog_socket, "PATIENCE_S", 0.1)
    log = AuditLog(tmp_path / "audit.jsonl", also=SyslogSocket(tmp_path / "nobody"))
    with pytest.raises(AuditProblem, match="nobody: No such file"):
        await log.write(a_line())
    with pytest.raises(OSError, match="No such file"):
        log.check()
    assert not log.path.exists()


@pytest.mark.parametrize("mode", [0o644, 0o660])
async def test_a_file_that_others_could_open_is_not_written(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch()
    path.chmod(mode)
    with pytest.raises(AuditProblem, match="mode 0600"):
        await AuditLog(path).write(a_line())


async def test_a_link_or_a_full_disk_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").symlink_to("/dev/full")
    with pytest.raises(AuditProblem):
        await AuditLog(tmp_path / "audit.jsonl").write(a_line())
    with pytest.raises(AuditProblem, match="No such file"):
        await AuditLog(tmp_path / "gone" / "audit.jsonl").write(a_line())


async def test_a_file_system_that_does_not_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "TIMEOUT_S", 0.1)
    log = AuditLog(tmp_path / "audit.jsonl")
    answers = os.eventfd(0)
    monkeypatch.setattr(log, "append", lambda data: os.eventfd_read(answers))
    begin = time.monotonic()
    for _ in range(2):  # the second waits for the first, and no longer
        with pytest.raises(AuditProblem, match="does not answer"):
            await log.write(a_line())
    assert time.monotonic() - begin < DEADLINE_S
    os.eventfd_write(answers, 1)
