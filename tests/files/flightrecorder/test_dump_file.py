"""Files of unknown origin: they are read as plain values, or refused with a sentence."""

from __future__ import annotations

import collections
import io
import os
import pickle  # noqa: TID251 - to write what the restricted reader has to refuse
import struct
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.flightrecorder.writer import make_recorders, pickle_like_torch
from frtop_tui.errors import Unreadable
from frtop_tui.files.flightrecorder import dump_file
from frtop_tui.files.flightrecorder.dump import parse_dump
from frtop_tui.files.flightrecorder.pickle_check import with_named_pairs
from frtop_tui.files.loader import open_paths

SAMPLE = make_recorders(2)
for _one in SAMPLE:
    _one.ran("0", count=3, frames=[{"name": "f", "filename": "t.py", "line": 1}])
    _one.waits("0")


MARKER = Path("frtop-was-here")


class Malicious:
    """Makes a folder wherever it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(MARKER),))


class PersistentPickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        return "elsewhere" if obj == 7 else None


def read(folder: Path, data: bytes) -> Any:
    path = folder / "nccl_trace_rank_0"
    path.write_bytes(data)
    return next(dump_file.read_dumps(path)).values


def refused(folder: Path, data: bytes) -> str:
    with pytest.raises(Unreadable) as caught:
        read(folder, data)
    return caught.value.text


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_every_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    values = SAMPLE[0].values()
    assert read(tmp_path, pickle.dumps(values, protocol)) == values


def test_pickles_of_torch_are_read(tmp_path: Path) -> None:
    values = {**SAMPLE[0].values(), "long": "x" * 5000, "many": [str(n) for n in range(600)]}
    assert read(tmp_path, pickle_like_torch(values)) == values


PAIR: Any = ("0", "default_pg")


@pytest.mark.parametrize("pair", [PAIR, (1, 2), (PAIR, PAIR), ("0", None), ["0"], ("\x86", "\x93")])
@pytest.mark.parametrize("protocol", [2, 4])
def test_pairs_are_read(tmp_path: Path, pair: object, protocol: int) -> None:
    entries = [{**entry, "process_group": pair} for entry in SAMPLE[0].values()["entries"]]
    values = {**SAMPLE[0].values(), "entries": entries, "both": {PAIR: pair}}
    assert read(tmp_path, pickle.dumps(values, protocol)) == values


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_dumps_that_python_has_written_again_need_no_slow_check(protocol: int) -> None:
    values = {**SAMPLE[0].values(), "long": "x" * 5000, "duration_ms": 0.25}
    assert with_named_pairs(pickle.dumps(values, protocol)) is not None


@pytest.mark.parametrize(
    "value", [Malicious(), collections.OrderedDict(a=1), Path("/"), {1, 2}, bytearray(3), 1j, len]
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_with_a_global_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: object, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"entries": [value]}, protocol)
    assert "nccl_trace_rank_0" in refused(tmp_path, data)
    assert not MARKER.exists()


def test_the_unpickler_refuses_globals_without_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for data in (pickle.dumps(Malicious()), pickle.dumps(len, 2)):
        with pytest.raises(pickle.UnpicklingError, match="names"):
            dump_file._Unpickler(io.BytesIO(data)).load()
    assert not MARKER.exists()
    out = io.BytesIO()
    PersistentPickler(out).dump([7])
    assert "not a dump" in refused(tmp_path, out.getvalue())
    with pytest.raises(pickle.UnpicklingError, match="outside"):
        dump_file._Unpickler(io.BytesIO(out.getvalue())).load()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # a memo of two thousand million entries
        b"\x80\x02Np2147483647\n.",
        b"\x80\x02X\xff\xff\xff\x7fabc.",  # texts longer than the file
        b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"abc.",
        b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"abc.",
        b"\x80\x02\x8b\xff\xff\xff\x7fabc.",
        b"\x80\x02}"
        + b"N\x85" * 1
        + b"\x85" * 200_000
        + b"Ns.",  # endlessly nested tuples as a key
        b"\x80\x02}N" + b"\x85\x94h\x00h\x00\x86" * 40 + b"Ns.",
        b"\x80\x04}\x8c\x01a\x94"  # each pair twice in the next one
        + b"".join(b"h%ch%c\x86\x94" % (n, n) for n in range(60))
        + b"Ns.",
        b"\x80\x02}N\x85" + b"2\x86" * 60 + b"Ns.",  # doubled sixty times
        b"\x80\x02}](K\x01eK\x02s.",  # a key that is not hashable
        b"\x80\x02}(K\x01u.",
        b"\x80\x02e.",
        b"\x80\x02h\x05.",
        b"\x80\xff.",
        b"\x80",
        b"{" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"entries": [',
        b"\x00" * 100,
        b"PK\x03\x04torch checkpoint",
        b"",
    ],
)
def test_hostile_bytes_are_refused_within_bounds(tmp_path: Path, data: bytes) -> None:
    tracemalloc.start()
    try:
        said = refused(tmp_path, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(tmp_path) in said
    assert peak < 64_000_000


def test_deeply_nested_lists_are_harmless(tmp_path: Path) -> None:
    deep = b"\x80\x02}X\x07\x00\x00\x00entries" + b"](" * 200_000 + b"e" * 200_000 + b"s."
    values = read(tmp_path, deep)
    assert parse_dump(tmp_path, values, 10).recent == []


def test_exponentially_shared_lists_are_harmless(tmp_path: Path) -> None:
    shared: list[Any] = [1]
    for _ in range(40):
        shared = [shared, shared]
    values = SAMPLE[0].values()
    odd = [{**entry, "input_sizes": shared, "frames": shared} for entry in values["entries"]]
    opened(tmp_path, pickle.dumps({**values, "entries": odd}, 4))


def test_a_file_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_file, "MAX_PICKLE", 1000)
    assert "larger" in refused(tmp_path, pickle_like_torch({"entries": ["x" * 2000]}))


def test_a_fifo_or_a_folder_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "nccl_trace_rank_0")
    (tmp_path / "nccl_trace_rank_1").mkdir()
    for number in (0, 1):
        with pytest.raises(Unreadable):
            next(dump_file.read_dumps(tmp_path / f"nccl_trace_rank_{number}"))
    with pytest.raises(Unreadable):
        open_paths([tmp_path])


@given(st.data())
def test_dumps_with_changed_bytes_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    intact = data.draw(st.sampled_from([SAMPLE[0].pickle(), pickle.dumps(SAMPLE[0].values(), 4)]))
    broken = bytearray(intact)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    opened(tmp_path, bytes(broken[: data.draw(st.integers(0, len(broken)))]))
    opened(tmp_path, bytes(broken))


def opened(folder: Path, data: bytes) -> None:
    (folder / "nccl_trace_rank_0").write_bytes(data)
    (folder / "nccl_trace_rank_1").write_bytes(SAMPLE[1].pickle())
    frame = open_paths([folder])
    assert frame.ranks.keys() >= {1}


@cache
def long_dump(*, stacks: bool) -> bytes:
    """A dump with everything that trimming has to find."""
    (one,) = make_recorders(1)
    one.group("1", range(4), "other")
    one.group("2", range(4), "seldom")
    one.group("3", range(4), "both")
    one.group("4", range(4), "pipeline")
    one.ran("2", count=3)
    one.waits("2", "broadcast")
    one.ran("3", count=5)
    for index in range(1500):
        one.ran("0", "all_gather" if index % 7 == 0 else "all_reduce")
        one.ran("1", input_sizes=[[index, 3]])
        if index % 10 == 0:
            one.p2p("3", "send", 1, done=True)
        if index < 1000:
            one.p2p("4", "recv", 2, done=True)
        if index == 700:
            one.ran("1", "reduce_scatter", thread_name="a text that first occurs late")
    one.waits("0")
    one.ran("1", count=20)
    if stacks:
        lines = [{"name": "f", "filename": "/home/me/train.py", "line": line} for line in range(9)]
        for index, entry in enumerate(one.entries):
            frames = [lines[index % 5], lines[index // 800]]
            one.entries[index] = {"frames": frames, **entry}
    return one.pickle()


@pytest.mark.parametrize(("keep", "stacks"), [(1, True), (64, False), (64, True), (5000, True)])
def test_a_trimmed_dump_parses_to_the_same(tmp_path: Path, keep: int, stacks: bool) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(long_dump(stacks=stacks))
    complete = parse_dump(path, next(dump_file.read_dumps(path)).values, keep)
    trimmed = next(dump_file.read_dumps(path, keep)).values
    assert parse_dump(path, trimmed, keep) == complete
    assert keep > 1000 or len(trimmed["entries"]) < 2 * keep + 40


@given(st.data())
def test_a_damaged_dump_can_be_trimmed(tmp_path: Path, data: st.DataObject) -> None:
    broken = bytearray(long_dump(stacks=False)[:60_000] + long_dump(stacks=False)[-60_000:])
    for _ in range(data.draw(st.integers(1, 30))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    opened(tmp_path, bytes(broken))
