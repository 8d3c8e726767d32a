"""Parsers of /proc take anything; readers see this very machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.eyes import proc, syscalls

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=15)


@given(NAMES, st.sampled_from("RSDTZX"), st.lists(st.integers(0, 2**40), min_size=49, max_size=49))
def test_the_name_of_a_process_may_be_anything(name: str, state: str, rest: list[int]) -> None:
    found = proc.parse_stat(f"4711 ({name}) {state} " + " ".join(map(str, rest)))
    assert (found.pid, found.name, found.state) == (4711, name, state)
    assert (found.parent, found.threads, found.start_ticks) == (rest[0], rest[16], rest[18])
    assert found.exit_status == rest[48]


@given(st.text(max_size=80))
def test_nonsense_is_no_stat(text: str) -> None:
    try:
        proc.parse_stat(text)
    except ValueError:
        return


@given(st.text(max_size=80))
def test_nonsense_elsewhere_is_unknown(text: str) -> None:
    proc.parse_syscall(text)
    proc.parse_wchan(text)
    assert proc.parse_io(text) >= -1
    assert proc.parse_schedstat(text) >= -1


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("0 0x3 0x7f 0x1 0x0 0x0 0x0 0x7ffc 0x7f51\n", (0, (3, 0x7F, 1, 0, 0, 0))),
        ("-1 0x7ffc 0x7f51\n", None),
        ("running\n", None),
        ("", None),
    ],
)
def test_system_calls(text: str, call: tuple[int, tuple[int, ...]] | None) -> None:
    assert proc.parse_syscall(text) == call


@pytest.mark.parametrize(("text", "ready"), [
    ("123 45 6\n", 168), ("0 0 0\n", -1), ("", -1), ("1 2\n", -1), ("1 -2 3\n", -1),
])  # fmt: skip
def test_a_kernel_that_does_not_count_waits_for_a_turn_says_nothing(text: str, ready: int) -> None:
    assert proc.parse_schedstat(text) == ready


def test_who_computes_could_run_all_the_time_and_who_sleeps_could_not() -> None:
    code = "import sys\nprint(flush=True)\n"
    programs = [code + "while True: pass", code + "sys.stdin.read()"]
    spent = []
    for program in programs:
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            before, begin = proc.process(child.pid), time.monotonic_ns()
            time.sleep(0.5)
            after, end = proc.process(child.pid), time.monotonic_ns()
            child.kill()
        assert before is not None
        assert after is not None
        if min(before.ready_ns, after.ready_ns) < 0:
            pytest.skip("this kernel does not count waits for a turn")
        spent.append((after.ready_ns - before.ready_ns) / (end - begin))
    assert spent[0] > 0.5 > spent[1]


def test_io_counts_what_was_read_and_written() -> None:
    assert proc.parse_io("rchar: 10\nwchar: 5\nsyscr: 1\nread_bytes: 4096\n") == 15
    assert proc.parse_io("rchar: 10\n") == -1


def test_kernel_places() -> None:
    assert proc.parse_wchan("0") == ""
    assert proc.parse_wchan("futex_do_wait") == "futex_do_wait"


def test_calls_are_named_by_machine() -> None:
    assert syscalls.name(0, "x86_64") == "read"
    assert syscalls.name(63, "aarch64") == "read"
    assert syscalls.name(9999, "x86_64") == "#9999"
    assert syscalls.name(0, "riscv64") == "#0"
    assert syscalls.descriptor("read", (7, 1, 2)) == 7
    assert syscalls.descriptor("sendfile", (7, 8, 2)) == 8
    assert syscalls.descriptor("futex", (7, 8, 2)) is None
    assert syscalls.descriptor("read", ()) is None


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    fifo = tmp_path / "shard-0412"
    os.mkfifo(fifo)
    program = "import os, sys; d = os.open(sys.argv[1], os.O_RDWR);print(flush=True); os.read(d, 1)"
    process = subprocess.Popen([sys.executable, "-c", program, str(fifo)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process, fifo
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_reader_shows_what_it_reads(reader: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, fifo = reader
    while (found := proc.process(process.pid)) is not None and not found.file:
        pass  # it has yet to fall asleep
    assert found is not None
    assert (found.syscall, found.file) == ("read", str(fifo))
    assert found.parent == os.getpid()
    assert found.rss > 1_000_000
    assert found.io_bytes > 0
    (thread,) = proc.threads(process.pid)
    assert thread.pid == process.pid
    assert process.pid in proc.children(os.getpid())
    process.send_signal(signal.SIGKILL)
    while (seen := proc.stat(process.pid)) is not None and seen.state != "Z":
        pass
    process.wait()
    assert proc.process(process.pid) is None
    assert proc.threads(process.pid) == ()
    assert proc.children(process.pid) == ()


def test_grandchildren_are_children_too() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", "sh -c 'echo $$; sleep 600; :'; :"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert shell.stdout is not None
        inner = int(shell.stdout.readline())
        assert inner in proc.children(shell.pid)
        while len(found := proc.children(shell.pid)) < 2:
            pass
        assert found[0] == inner
    finally:
        for pid in proc.children(shell.pid):
            os.kill(pid, signal.SIGKILL)
        shell.kill()
        shell.wait()
        if shell.stdout is not None:
            shell.stdout.close()


def test_another_proc_can_be_read(tmp_path: Path) -> None:
    place = tmp_path / "7"
    (place / "task" / "7").mkdir(parents=True)
    fields = " ".join(["1"] * 50)
    (place / "stat").write_text(f"7 (py\xffthon) D {fields}", encoding="latin-1")
    (place / "wchan").write_text("folio_wait_bit")
    (place / "task" / "7" / "children").write_text("8 9 ")
    found = proc.process(7, tmp_path)
    assert found is not None
    assert (found.state, found.wchan) == ("D", "folio_wait_bit")
    assert (found.io_bytes, found.children) == (-1, 2)
    assert proc.children(7, tmp_path) == (8, 9)
