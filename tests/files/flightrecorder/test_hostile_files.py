"""Small files that were made to take much time or memory, or to break the reader."""

from __future__ import annotations

import pickle  # noqa: TID251 - to write what a dump of torch never holds
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from files.flightrecorder.writer import make_recorders, pickle_like_torch
from frtop_tui.files import capture
from frtop_tui.files.loader import open_paths

SECONDS: Final = 12
BYTES: Final = 1_500_000_000
OPENS: Final = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
resource.setrlimit(resource.RLIMIT_AS, ({BYTES}, {BYTES}))
from frtop_tui.cli import main
print(*(main(["diagnose", folder]) for folder in sys.argv[1:]))
"""


def dump(**changes: Any) -> dict[str, Any]:
    one = make_recorders(2)[1]
    one.ran("0", count=3)
    one.waits("0")
    values: dict[str, Any] = {**one.values(), **changes}
    return values


def shared(depth: int) -> list[Any]:
    """Nested lists that each hold the inner one twice."""
    inner: list[Any] = ["a"]
    for _ in range(depth):
        inner = [inner, inner]
    return inner


def many_large_groups() -> bytes:
    group = {"ranks": list(range(60_000))}
    return pickle.dumps(dump(pg_config={str(number): group for number in range(2000)}), 2)


def a_huge_key() -> bytes:
    return pickle.dumps(dump(pg_status={((("a" * 1_000_000,) * 64,) * 64): {}}), 2)


def a_shared_group_number() -> bytes:
    entries = [{**entry, "pg_id": shared(60)} for entry in dump()["entries"]]
    return pickle.dumps(dump(pg_status={}, entries=entries), 2)


def tokens(*, groups: int, of_each: int) -> bytes:
    """No complete entry: only what the search for the last entries of groups looks for."""
    head = b"\x80\x02}q\x00(X\x07\x00\x00\x00entriesq\x01](}(X\x06\x00\x00\x00framesq\x02"
    head += b"X\x05\x00\x00\x00pg_idq\x03X\x07\x00\x00\x00retiredq\x04X\x06\x00\x00\x00is_p2pq\x05"
    body = b"".join(
        b"h\x03M" + n.to_bytes(2, "little") for n in range(groups) for _ in range(of_each)
    )
    return head + body + b"u}(h\x02" * 60 + b"u."


COSTLY: dict[str, Callable[[], bytes]] = {
    "groups": many_large_groups,
    "status": a_huge_key,
    "shared lists": a_shared_group_number,
    "ends of entries": lambda: tokens(groups=80, of_each=2000),
}


def test_small_hostile_files_take_little_time_and_memory(tmp_path: Path) -> None:
    folders = [tmp_path / how for how in COSTLY]
    for folder in folders:
        folder.mkdir()
        (folder / "nccl_trace_rank_1").write_bytes(COSTLY[folder.name]())
        (folder / "nccl_trace_rank_0").write_bytes(make_recorders(2)[0].pickle())
    done = subprocess.run(
        [sys.executable, "-c", OPENS, *map(str, folders)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert set(done.stdout.splitlines()[-1].split()) <= {"0", "4", "5"}
    assert "Traceback" not in done.stderr


GROUPS: Final = {"0": {"desc": "\ud800", "ranks": "[0, 1]"}, "\ud800": {"ranks": [0, 1]}}
ODD: dict[str, Any] = {
    "a number that int() refuses": dump(pg_status={"²": {}, "٢": {}, "7": {}}),
    "a group that int() refuses": dump(pg_config={"²": {"ranks": "[0, 1]"}}),
    "a status of an endless number": dump(pg_status={10**5000: {}, -3: {}, True: {}, None: {}}),
    "a group of an endless number": dump(
        pg_status={}, entries=[{**entry, "pg_id": 10**5000} for entry in dump()["entries"]]
    ),
    "a lone surrogate in a nested text": {"1": "{\ud800", "0": dump()},
    "a lone surrogate in a group": dump(pg_config=GROUPS, version="\ud800"),
    "a lone surrogate in entries": dump(
        entries=[
            {
                **entry,
                "profiling_name": "nccl:\ud800",
                "process_group": ("\ud800", "\ud800"),
                "input_dtypes": ["\ud800"],
                "frames": [{"name": "\ud800", "filename": "/\ud801.py", "line": 3}],
            }
            for entry in dump()["entries"]
        ]
    ),
}


@pytest.mark.parametrize("how", ODD)
def test_odd_values_are_read_and_captured(tmp_path: Path, how: str) -> None:
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(ODD[how], 2))
    (tmp_path / "nccl_trace_rank_0").write_bytes(make_recorders(2)[0].pickle())
    frame = open_paths([tmp_path])
    assert frame.ranks
    capture.write(tmp_path / "all.cap", frame, {}, ())
    assert capture.read(tmp_path / "all.cap").ranks.keys() == frame.ranks.keys()


def test_a_lone_surrogate_in_a_file_name_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "job\udcff"
    folder.mkdir()
    (folder / "node\udcff_rank_1").write_bytes(pickle_like_torch(dump()))
    (folder / "nccl_trace_rank_\udcff").write_bytes(b"")
    frame = open_paths([folder])
    capture.write(tmp_path / "all.cap", frame, {}, ())
    assert capture.read(tmp_path / "all.cap").ranks[1].host == "node\N{REPLACEMENT CHARACTER}"
