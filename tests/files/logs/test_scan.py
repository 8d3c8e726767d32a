"""Logs are read as streams: wherever a block ends, the same lines come out."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frtop_tui.errors import Unreadable
from frtop_tui.files.logs import scan
from frtop_tui.files.logs.scan import MAX_RECORD, RawLine, is_text, lines_of, searched

WORDS = (b"alpha", b"b=")
ZSTD = bytes.fromhex("28b52ffd200b5900006e6f0a616c70686120310a")
"""Two lines, as `zstd` packs them."""
_PIECES = st.sampled_from(
    [b"\n", b"\r", b"\r\n", b"alpha", b"b=", b"al", b"pha", b"x", b" ", b"\x1b[31m", b"\xc3\xa9"]
)


def never() -> bool:
    return False


def always() -> bool:
    return True


def read(data: bytes, block: int, wants_all: Callable[[], bool] = never) -> list[RawLine]:
    return [*searched(io.BytesIO(data), WORDS, wants_all, block=block)]


def plain(data: bytes) -> list[tuple[int, str]]:
    """The records with a word, found line by line."""
    return [
        (number, record.replace(b"\x1b[31m", b"").decode())
        for number, line in enumerate(data.split(b"\n"), 1)
        for record in line.split(b"\r")
        if any(word in record for word in WORDS)
    ]


@given(st.lists(_PIECES, max_size=60).map(b"".join), st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_any_split_into_blocks_gives_the_same_lines(data: bytes, block: int) -> None:
    found = read(data, block)
    assert [(line.number, line.text) for line in found] == plain(data)
    every = read(data, block, always)
    assert [line for line in every if line.chosen] == found
    assert [line.number for line in every] == sorted(line.number for line in every)


@given(st.lists(_PIECES, max_size=60).map(b"".join), st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_while_all_lines_are_wanted_none_is_missing(data: bytes, block: int) -> None:
    texts = [line.text for line in read(data, block, always) if line.text]
    records = data.replace(b"\x1b[31m", b"").replace(b"\r", b"\n").split(b"\n")
    assert texts == [record.decode() for record in records if record]


def test_the_line_before_a_second_one_counts_as_well() -> None:
    data = b"x\nfirst\nsecond alpha\ny\nsecond alpha\n"
    found = [*searched(io.BytesIO(data), (b"b=",), never, seconds=(b"alpha",))]
    assert [(line.number, line.text) for line in found] == [
        (2, "first"),
        (3, "second alpha"),
        (4, "y"),
        (5, "second alpha"),
    ]


def test_a_record_without_an_end_is_cut_and_the_next_one_is_found() -> None:
    data = b"x" * 5_000_000 + b"alpha\nalpha 2\n" + b"b=" + b"y" * 100_000 + b"\nalpha 4"
    found = read(data, 1 << 20)
    assert [(line.number, line.text[:7]) for line in found] == [
        (2, "alpha 2"),
        (3, "b=yyyyy"),
        (4, "alpha 4"),
    ]
    assert len(found[1].text) == MAX_RECORD


def test_a_compressed_log_is_read(tmp_path: Path) -> None:
    log, torn = tmp_path / "a.log.gz", tmp_path / "torn.log.gz"
    log.write_bytes(gzip.compress(b"no\nalpha 1\n"))
    torn.write_bytes(log.read_bytes()[:-9])
    assert all(map(is_text, (log, torn)))
    assert [line.text for line in lines_of(log, WORDS, never)] == ["alpha 1"]
    with pytest.raises(Unreadable, match="cannot be read to its end"):
        [*lines_of(torn, WORDS, never)]


def test_zstd_is_read_if_this_python_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, torn = tmp_path / "a.log.zst", tmp_path / "b.log.zst"
    log.write_bytes(ZSTD)
    torn.write_bytes(ZSTD[:-5])
    assert is_text(log)
    if scan._zstd is not None:
        assert [line.text for line in lines_of(log, WORDS, never)] == ["alpha 1"]
        with pytest.raises(Unreadable, match="cannot be read to its end"):
            [*lines_of(torn, WORDS, never)]
    monkeypatch.setattr(scan, "_zstd", None)
    with pytest.raises(Unreadable) as raised:
        [*lines_of(log, WORDS, never)]
    assert "pip install backports.zstd, or: zstd -dc a.log.zst | frtop" in raised.value.next_step


def test_progress_is_told_in_bytes_of_the_file(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"alpha\n" * 400_000)
    told: list[int] = []
    assert sum(1 for _ in lines_of(log, WORDS, never, told.append)) == 400_000
    assert told == sorted(told)
    assert told[-1] == log.stat().st_size


def test_binary_files_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x80\x04}\n\x00q")
    (tmp_path / "empty").write_bytes(b"")
    assert not is_text(tmp_path / "a")
    (tmp_path / "crashed").write_bytes(b"step 1\n\0step 2\n" + b"x" * 200)
    assert is_text(tmp_path / "crashed")
    assert not is_text(tmp_path / "empty")
