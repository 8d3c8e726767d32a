"""The parsers of /proc accept anything; the readers see this machine's processes."""

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

from frtop_probe import wire
from frtop_probe.proc import processes, syscalls
from waiting import wait_for


@given(st.text(max_size=80))
def test_malformed_files_are_unknown(text: str) -> None:
    processes.parse_syscall(text)
    processes.parse_wchan(text)
    assert processes.parse_io(text) >= -1
    assert processes.parse_schedstat(text) >= -1


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
    assert processes.parse_syscall(text) == call


@pytest.mark.parametrize(("text", "ready"), [
    ("123 45 6\n", 168), ("0 0 0\n", -1), ("", -1), ("1 2\n", -1), ("1 -2 3\n", -1),
])  # fmt: skip
def test_schedstat_of_a_kernel_that_does_not_count_is_unknown(text: str, ready: int) -> None:
    assert processes.parse_schedstat(text) == ready


def test_a_computing_process_is_ready_and_a_sleeping_one_is_not() -> None:
    code = "import sys\nprint(flush=True)\n"
    programs = [code + "while True: pass", code + "sys.stdin.read()"]
    spent = []
    for program in programs:
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            before, begin = processes.read_process(child.pid), time.monotonic_ns()
            time.sleep(0.5)
            after, end = processes.read_process(child.pid), time.monotonic_ns()
            child.kill()
        assert before is not None
        assert after is not None
        if min(before.ready_ns, after.ready_ns) < 0:
            pytest.skip("this kernel does not count waits for a turn")
        spent.append((after.ready_ns - before.ready_ns) / (end - begin))
    assert spent[0] > 0.5 > spent[1]


def test_io_is_bytes_read_plus_written() -> None:
    assert processes.parse_io("rchar: 10\nwchar: 5\nsyscr: 1\nread_bytes: 4096\n") == 15
    assert processes.parse_io("rchar: 10\n") == -1


def test_wchan_0_means_running() -> None:
    assert processes.parse_wchan("0") == ""
    assert processes.parse_wchan("futex_do_wait") == "futex_do_wait"


def test_system_call_names_depend_on_the_machine() -> None:
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


def test_a_blocked_reader_shows_the_file_it_reads(
    reader: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, fifo = reader

    def blocked() -> wire.Process | None:
        seen = processes.read_process(process.pid)
        return seen if seen is not None and seen.file else None

    found = wait_for(blocked, "it is blocked in the read")
    assert (found.syscall, found.file) == ("read", str(fifo))
    assert found.parent == os.getpid()
    assert found.rss > 1_000_000
    assert found.io_bytes > 0
    (thread,) = processes.read_threads(process.pid)
    assert thread.pid == process.pid
    assert process.pid in processes.descendants(os.getpid())
    process.send_signal(signal.SIGKILL)
    wait_for(
        lambda: (seen := processes.read_stat(process.pid)) is None or seen.state == "Z", "it ends"
    )
    process.wait()
    assert processes.read_process(process.pid) is None
    assert processes.read_threads(process.pid) == ()
    assert processes.descendants(process.pid) == ()


def test_grandchildren_are_descendants() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", "sh -c 'echo $$; sleep 600; :'; :"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert shell.stdout is not None
        inner = int(shell.stdout.readline())
        assert inner in processes.descendants(shell.pid)
        wait_for(lambda: len(processes.descendants(shell.pid)) == 2, "the inner shell forks")
        assert processes.descendants(shell.pid)[0] == inner
    finally:
        for pid in processes.descendants(shell.pid):
            os.kill(pid, signal.SIGKILL)
        shell.kill()
        shell.wait()
        if shell.stdout is not None:
            shell.stdout.close()


def test_another_proc_folder_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    (folder / "task" / "7").mkdir(parents=True)
    fields = " ".join(["1"] * 50)
    (folder / "stat").write_text(f"7 (py\xffthon) D {fields}", encoding="latin-1")
    (folder / "wchan").write_text("folio_wait_bit")
    (folder / "task" / "7" / "children").write_text("8 9 ")
    for pid, ids in ((8, f"{os.getuid()} " * 4), (9, f"{os.getuid()} 99 99 99")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(f"Name:\tpython\nUid:\t{ids}\n")
    found = processes.read_process(7, tmp_path)
    assert found is not None
    assert (found.state, found.wchan) == ("D", "folio_wait_bit")
    assert (found.io_bytes, found.children) == (-1, 2)
    assert processes.descendants(7, tmp_path) == (8,)  # 9 has gained rights
