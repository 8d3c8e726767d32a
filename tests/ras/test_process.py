"""What is found out about a real process: its NCCL, its settings, who listens on its port."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_probe.proc.connections import socket_inodes
from frtop_probe.ras import communicator_setup as setup
from frtop_probe.ras.library import (
    BY_DATA,
    BY_NAME,
    UNVERIFIED,
    MappedLibrary,
    find_library,
    read_version,
    version_in,
)
from frtop_probe.ras.listeners import (
    listeners_on,
    owners,
    parse_listeners,
    same_network,
)
from frtop_probe.ras.process_reader import DID_NOT_RETURN, NO_ANSWER, ProcessLook, look_at
from frtop_probe.ras.settings import RasSettings, parse_settings
from ras.library_file import elf, write_library

HOLD = """
import mmap, os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
held = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holders() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        one.kill()
        one.communicate()


def hold(holders: list[subprocess.Popen[str]], path: Path, **environment: str) -> int:
    """Starts a process that has a file mapped; returns its pid."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    holders.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process.pid


def look(pid: int) -> ProcessLook:
    return asyncio.run(look_at(pid))


def test_version_and_settings_of_a_process(
    holders: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    path = write_library(tmp_path)
    pid = hold(holders, path, NCCL_RAS_ADDR="127.0.0.1:3000", NCCL_RAS_ENABLE="1", SECRET="x")
    found = look(pid)
    assert (found.version, found.source, found.library) == ("2.28.9", BY_DATA, str(path))
    assert found.environment == {"NCCL_RAS_ADDR": "127.0.0.1:3000", "NCCL_RAS_ENABLE": "1"}
    assert (found.own_pid, found.reason) == (pid, "")


def test_the_version_in_a_file_name_needs_no_file(
    holders: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    path = write_library(tmp_path, name="libnccl.so.2.27.3")
    pid = hold(holders, path)
    path.unlink()
    assert (look(pid).version, look(pid).source) == ("2.27.3", BY_NAME)


def test_a_file_that_was_replaced_is_said(
    holders: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    path = write_library(tmp_path)
    pid = hold(holders, path)
    path.rename(tmp_path / "old")
    (tmp_path / "libnccl.so.2").symlink_to(tmp_path / "old")
    renamed = look(pid)
    assert renamed.library == ""  # it is mapped by its new name, which is none of NCCL's
    (tmp_path / "old").rename(path)
    other = write_library(tmp_path / "more", "2.29.7")
    other.replace(path)
    gone = look(pid)
    assert (gone.version, "deleted or replaced" in gone.source) == ("", True)


def test_a_process_without_nccl_and_one_that_has_ended(
    holders: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    plain = tmp_path / "libnccl-net.so"
    plain.write_bytes(elf(b"NCCL version 2.28.9"))
    assert look(hold(holders, plain)).library == ""
    pid = holders[0].pid
    holders[0].kill()
    holders[0].wait()
    assert look(pid).reason


def test_a_child_that_hangs_or_fails_is_a_reason() -> None:
    slow = (sys.executable, "-S", "-c", "import time; time.sleep(60)")
    assert asyncio.run(look_at(1, seconds=0.3, command=slow)).reason == DID_NOT_RETURN
    wrong = (sys.executable, "-S", "-c", "print('x')")
    assert asyncio.run(look_at(1, command=wrong)).reason == NO_ANSWER
    assert "did not start" in asyncio.run(look_at(1, command=("/nowhere",))).reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no ELF"),
        (b"\x7fELF\x02\x01" + bytes(80), "no sections"),
        (elf(b"nothing of it"), "says no version"),
        (elf(b"NCCL version 2.28.9\0NCCL version 2.28.7\0"), "says two versions"),
        (elf(b"NCCL version 2.28.9.1.4\0"), "says no version"),
        (elf(b"NCCL version 2.28.9\0")[:-40], "cut off"),
    ],
)
def test_a_file_that_is_no_library_is_a_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(data)
    with path.open("rb") as file, pytest.raises(ValueError, match=reason):
        version_in(file)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 300))
def test_a_damaged_library_never_does_worse_than_no_version(junk: bytes, at: int) -> None:
    data = elf(b"NCCL version 2.28.9\0")
    with tempfile.TemporaryFile() as file:
        file.write(data[:at] + junk + data[at + len(junk) :])
        file.seek(0)
        try:
            version_in(file)
        except (ValueError, io.UnsupportedOperation):
            return


def test_the_version_is_found_across_the_bounds_of_reads(tmp_path: Path) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(elf(b"\0" * ((1 << 20) - 8) + b"NCCL version 2.28.9+x\0" + b"\0" * 3000))
    with path.open("rb") as file:
        assert version_in(file) == "2.28.9"


def test_only_libnccl_itself_is_found_in_maps() -> None:
    line = "7f00-7f01 r--p 00000000 fe:01 77 {}\n"
    others = ("/x/libnccl-net.so", "/x/libnccl_ofi.so.2", "/x/mylibnccl.so", "[heap]", "libnccl.so")
    assert find_library("".join(line.format(one) for one in others) + "junk\n") is None
    found = find_library(line.format("/with blanks/libnccl.so.2 (deleted)"))
    assert found is not None
    assert (found.path, found.inode, found.deleted) == ("/with blanks/libnccl.so.2", 77, True)


@given(st.text(max_size=300))
def test_any_text_of_maps_is_read(text: str) -> None:
    find_library(text)
    find_library("7f00-7f01 r--p 0 " + text + " /libnccl.so.2")


def test_another_inode_than_the_mapped_one_is_not_claimed_to_be_it(
    tmp_path: Path,
) -> None:
    path = write_library(tmp_path)
    found = read_version(os.getpid(), MappedLibrary(str(path), 0, 1))
    assert (found.version, found.source) == ("2.28.9", UNVERIFIED)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, RasSettings()),
        ({"NCCL_RAS_ENABLE": "0"}, RasSettings(enabled=False)),
        ({"NCCL_RAS_ENABLE": " 0x0 "}, RasSettings(enabled=False)),
        ({"NCCL_RAS_ENABLE": "off"}, RasSettings()),
        ({"NCCL_RAS_ADDR": "localhost:99"}, RasSettings(port=99)),
        ({"NCCL_RAS_ADDR": "[::1]:99"}, RasSettings(hosts=("::1",), port=99)),
        ({"NCCL_RAS_ADDR": "[fe80::1%eth0]:99"}, RasSettings(hosts=("fe80::1",), port=99)),
        ({"NCCL_RAS_ADDR": "10.0.0.1:99"}, RasSettings(hosts=("10.0.0.1",), port=99)),
        ({"NCCL_RAS_ADDR": "node3:99"}, RasSettings(hosts=(), port=99)),
    ],
)
def test_settings(environment: dict[str, str], expected: RasSettings) -> None:
    assert parse_settings(environment) == expected


@pytest.mark.parametrize("text", ["x", ":99", "a:", "a:b", "a:70000", "a:0", "a:-1", "a:٣"])
def test_settings_that_make_no_sense_are_a_problem(text: str) -> None:
    assert "NCCL_RAS_ADDR" in parse_settings({"NCCL_RAS_ADDR": text}).problem


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_settings_are_read(enable: str, address: str) -> None:
    found = parse_settings({"NCCL_RAS_ENABLE": enable, "NCCL_RAS_ADDR": address})
    assert 0 < found.port < 65536


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::"])
def test_listeners_and_their_processes_are_found(host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
        one.bind((host, 0))
        one.listen()
        port = one.getsockname()[1]
        (found,) = listeners_on(port)
        assert found.host == {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        assert found.inode in socket_inodes(os.getpid())
        assert os.getpid() in owners([found.inode])[found.inode]
    assert listeners_on(port) == ()
    assert same_network(os.getpid()) is True


@given(st.text(max_size=300))
def test_any_table_is_read(text: str) -> None:
    parse_listeners(text, 80)
    parse_listeners(f"0: {text}:0050 0:0 0A 0 0 0 {text} 0 7 8", 80)


def frame(function: str, file: str = "/x/torch/distributed/distributed_c10d.py") -> wire.TraceFrame:
    return wire.TraceFrame(function, file, 1)


def stack(*frames: wire.TraceFrame) -> tuple[wire.ThreadStack, ...]:
    return (wire.ThreadStack(1, 1, "MainThread", True, False, frames),)


@pytest.mark.parametrize(
    ("threads", "first", "maker"),
    [
        (stack(frame("new_group")), (), "new_group"),
        (stack(frame("wait"), frame("init_process_group")), (), "init_process_group"),
        (stack(frame("new_group", "/srv/mine.py")), (), ""),
        (stack(frame("ncclCommInitRank", "/srv/pynccl_wrapper.py")), (), "ncclCommInitRank"),
        (stack(frame("ncclCommInitRankConfig", "")), (), "ncclCommInitRankConfig"),
        (stack(frame("ncclAllReduce", "")), (), ""),
        (stack(frame("all_reduce")), (), ""),
        (stack(frame("all_reduce")), ("tp",), "all_reduce, the first op of group tp"),
        ((), ("tp",), ""),
    ],
)
def test_a_communicator_in_the_making_is_seen_in_stacks(
    threads: tuple[wire.ThreadStack, ...], first: tuple[str, ...], maker: str
) -> None:
    assert setup.maker_in_stacks(threads, first) == maker


def test_a_first_op_counts_for_nccl_only() -> None:
    groups = (
        wire.Group(1, "0", "default_pg", "cpu:gloo,cuda:nccl", "0-7"),
        wire.Group(2, "1", "tp", "nccl", "0-3"),
        wire.Group(3, "2", "cpu", "gloo", "0-7"),
        wire.Group(4, "3", "unused", "nccl", "0-7"),
    )
    progress = {n: wire.GroupProgress(n, number, 0, 1) for n, number in ((1, 2), (2, 1), (3, 1))}
    assert setup.groups_in_first_op(groups, progress) == ("tp",)
