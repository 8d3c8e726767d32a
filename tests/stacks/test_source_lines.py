"""Lines of source files are cached, and read again when a file changes."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from frtop_probe.proc.process_root import ProcessRoot, SourceFile, read_source
from frtop_probe.stacks import source_lines
from frtop_probe.stacks.source_lines import SourceLines
from waiting import DEADLINE_S, wait_for_async


async def read(reader: SourceLines, file: str, number: int) -> str:
    await reader.read({file}, DEADLINE_S)
    return reader.line(file, number)


async def test_missing_lines_are_empty(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("one\n\f  two\n" + "x" * 500)  # Python counts no line at a form feed
    reader = SourceLines()
    assert await read(reader, str(file), 2) == "two"
    assert await read(reader, str(file), 0) == await read(reader, str(file), 4) == ""
    assert len(await read(reader, str(file), 3)) == 200
    assert await read(reader, str(tmp_path / "none.py"), 1) == ""
    assert await read(reader, str(tmp_path), 1) == ""
    assert await read(reader, "\0", 1) == ""


async def test_a_changed_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.py"
    file.write_text("old")
    reader = SourceLines()
    assert await read(reader, str(file), 1) == "old"
    file.write_text("newer")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert await read(reader, str(file), 1) == "newer"


async def test_the_number_of_cached_files_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_probe.stacks.source_lines.MAX_FILES", 3)
    reader = SourceLines()
    for number in range(6):
        (tmp_path / f"{number}.py").write_text(str(number))
        assert await read(reader, str(tmp_path / f"{number}.py"), 1) == str(number)
    assert reader.line(str(tmp_path / "0.py"), 1) == ""


async def test_a_file_that_hangs_delays_only_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("first")
    last.write_text("last")
    over = threading.Event()

    def read_or_hang(root: ProcessRoot, file: str, known: SourceFile | None) -> SourceFile:
        if file == "/hangs":
            over.wait(DEADLINE_S)
        return read_source(root, file, known)

    monkeypatch.setattr(source_lines, "read_source", read_or_hang)
    reader = SourceLines()
    await reader.read([str(first), "/hangs"], 0.01)
    await wait_for_async(lambda: reader.line(str(first), 1), "the first file is read")
    waiting = asyncio.create_task(read(reader, str(last), 1))
    over.set()
    assert await waiting == "last"


async def test_without_a_thread_there_are_no_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    file = tmp_path / "a.py"
    file.write_text("one")
    reader = SourceLines()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        assert await read(reader, str(file), 1) == ""
    assert await read(reader, str(file), 1) == "one"


TAKEN = "self.lock.acquire()"


@pytest.mark.parametrize(
    ("lines", "taken"),
    [
        ([TAKEN, "work()  # here"], True),
        ([TAKEN, "try:", "    work()  # here", "finally:", "    self.lock.release()"], True),
        ([TAKEN, "if new:", "    for one in new:", "        work()  # here"], True),
        (["while True:", f"    {TAKEN}", "    work()  # here", "    self.lock.release()"], True),
        ([TAKEN, "self.other.release()", "work()  # here"], True),
        (["if self.lock.acquire(timeout=5):", "    work()  # here"], True),
        ([TAKEN, "self.lock.release()", "work()  # here"], False),
        ([TAKEN, "try:", "    f()", "finally:", "    self.lock.release()", "work()  # here"],
         False),
        (["if self.lock.acquire(timeout=5):", "    self.lock.release()", "    work()  # here"],
         False),
        (["if new:", f"    {TAKEN}", "work()  # here"], False),
        (["if new:", f"    {TAKEN}", "else:", "    work()  # here"], False),
        (["if not self.lock.acquire(timeout=5):", "    work()  # here"], False),
        (["if self.lock.acquire(timeout=5):", "    f()", "else:", "    work()  # here"], False),
        ([TAKEN, "while True:", "    work()  # here", "    self.lock.release()"], False),
        ([TAKEN, "for _ in new:", "    work()  # here", "    if x:", "        self.lock.release()"],
         False),
        (["self.lock.acquire(blocking=False)", "work()  # here"], False),
        ([f"# {TAKEN}", "work()  # here"], False),
        (["'''So it is used:", TAKEN, "'''", "work()  # here"], False),
        (["def inner():", f"    {TAKEN}", "work()  # here"], False),
        ([TAKEN, "def inner():", "    work()  # here"], False),
    ],
)  # fmt: skip
async def test_locks_that_were_taken_on_the_way_to_a_line_are_told(
    tmp_path: Path, lines: list[str], taken: bool
) -> None:
    file = tmp_path / "a.py"
    file.write_text("\n".join(["def f(self):", *(f"    {line}" for line in lines)]))
    number = next(n for n, line in enumerate(lines, 2) if line.endswith("# here"))
    reader = SourceLines()
    await reader.read({str(file)}, DEADLINE_S)
    found = [text for text in reader.blocks(str(file), number)[1:] if "acquire" in text]
    assert [text for text in found if not text.startswith("if not ")] == (
        [next(line.strip() for line in lines if "acquire" in line)] if taken else []
    )
