"""The one parser of /proc/PID/stat accepts anything."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.proc import pid_stat

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=15)


@given(NAMES, st.sampled_from("RSDTZX"), st.lists(st.integers(0, 2**40), min_size=49, max_size=49))
def test_the_name_of_a_process_may_be_anything(name: str, state: str, rest: list[int]) -> None:
    found = pid_stat.parse(f"4711 ({name}) {state} {' '.join(map(str, rest))}".encode())
    assert found is not None
    assert (found.pid, found.name, found.state) == (4711, name, state)
    assert (found.parent, found.session, found.flags) == (rest[0], rest[2], rest[5])
    assert (found.cpu_ticks, found.waited_ticks) == (rest[10] + rest[11], rest[12] + rest[13])
    assert (found.threads, found.start_ticks, found.pages) == (rest[16], rest[18], rest[20])
    assert found.exit_status == rest[48]
    assert found.has_ended == (state in "ZX")


@given(st.binary(max_size=200))
def test_any_bytes(line: bytes) -> None:
    pid_stat.parse(line)


def test_a_cut_line_is_none() -> None:
    assert pid_stat.parse(b"77 (a) (b c) S 5 77 77 0 -1") is None
    assert pid_stat.parse(b"77 (cut") is None


def test_this_process_is_known(tmp_path: Path) -> None:
    found = pid_stat.read("/proc/self")
    assert found is not None
    assert (found.pid, found.parent) == (os.getpid(), os.getppid())
    assert found.rss > 0
    assert pid_stat.read(tmp_path) is None
