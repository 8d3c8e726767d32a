"""Captures survive the round trip, and reading a damaged one does no harm."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from diagnosis.scenes import Scene
from files.test_recorded_bytes import SLEEPING
from frtop_probe import archive, wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files import capture
from frtop_tui.files.histories import ops_of
from frtop_tui.files.loader import open_paths
from frtop_tui.text.plain import text
from history_rows import HistoryRow, packed
from screens.native_scenes import taken, with_native
from screens.rare_scenes import SCENES as ODD
from screens.scenes import SCENES, SITE, hung


def rows(count: int, begin: int = 1) -> wire.HistoryResponse:
    signature = wire.Signature("all_reduce", reduce="sum")
    made = (
        HistoryRow(begin + n, 1, begin + n, 1, 1, 1000 * n, 0 if n == count - 1 else 500, 7, 1)
        for n in range(count)
    )
    return wire.HistoryResponse(1, "node0", 1, wire.History((signature,), (SITE,), packed(made), 3))


def plain(frame: Frame) -> Frame:
    """The frame without the fields that only a recorded frame has."""
    return replace(frame, recorded=None, read_only="")


def held() -> Frame:
    """One rank of it was held for its native stacks."""
    return with_native(taken(90_077))


@pytest.mark.parametrize("scene", [*SCENES.values(), *ODD.values(), held])
def test_a_frame_survives_the_round_trip(scene: Callable[[], Frame], tmp_path: Path) -> None:
    frame = scene()
    path = tmp_path / "x.cap"
    assert capture.write(path, frame, {}, ()) == path.stat().st_size
    assert plain(capture.read(path)) == replace(plain(frame), writings=())


def test_histories_share_values_and_keep_usual_durations(tmp_path: Path) -> None:
    frame = hung()
    view = frame.ranks[0]
    assert view.snapshot is not None
    last = msgspec.structs.replace(view.snapshot.ops[-1], sequence=50, usual_ns=9, usual_count=4)
    snapshot = msgspec.structs.replace(view.snapshot, ops=(last,))
    frame = replace(frame, ranks={**frame.ranks, 0: replace(view, snapshot=snapshot)})
    capture.write(tmp_path / "x.cap", frame, {0: rows(50), 5: rows(3)}, ())
    found = capture.read(tmp_path / "x.cap").ranks
    read = found[0].snapshot
    assert read is not None
    assert [op.sequence for op in read.ops] == list(range(1, 51))
    assert read.dumps == snapshot.dumps
    assert len({id(op.signature) for op in read.ops}) == len({id(op.site) for op in read.ops}) == 1
    assert read.ops[-1].pending
    assert (read.ops[-1].usual_ns, read.ops[-1].usual_count) == (9, 4)
    assert read.ops[0].done_ns == read.ops[0].issued_ns + 500
    assert read.ops_lost == 3
    assert found[5].snapshot is not None
    assert len(found[5].snapshot.ops) == 3
    assert found[6].snapshot == frame.ranks[6].snapshot


def test_an_index_outside_its_table_is_unknown() -> None:
    odd = (HistoryRow(1, 1, 1, 9, -3, 0, -4, 0), HistoryRow(2, 1, 2, -1, 77, 0, 0, 0, 7))
    first, second = ops_of(wire.History((), (), packed(odd)))
    assert (first.signature, first.site, first.done_ns) == (None, None, -4)
    assert (second.sync, second.p2p, second.tracked) == (True, True, False)


def content(path: Path) -> dict[str, object]:
    found: dict[str, object] = msgspec.msgpack.decode(archive.read(path, "capture"))
    return found


def test_another_format_is_refused_with_who_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "x.cap"
    capture.write(path, hung(), {}, ())
    new = {**content(path), "format": 2, "version": "7.1", "frame": 12}
    archive.write(path, "capture", msgspec.msgpack.encode(new))
    with pytest.raises(Unreadable, match=r"by frtop 7\.1 in format 2") as refused:
        capture.read(path)
    assert "pip install" in refused.value.next_step


def test_a_file_of_another_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "x.cap"
    magic = archive.MAGIC
    path.write_bytes(SLEEPING.read_bytes().replace(magic, magic[:-1] + b"2"))
    with pytest.raises(Unreadable, match=r"x\.cap is a capture in version 2") as refused:
        open_paths([path])
    assert "pip install" in refused.value.next_step


def test_unknown_fields_are_ignored_and_unknown_values_name_the_version(tmp_path: Path) -> None:
    path = tmp_path / "x.cap"
    capture.write(path, hung(), {}, ())
    known = content(path)
    frame = known["frame"]
    assert isinstance(frame, dict)
    newer = {**known, "mood": 1, "frame": {**frame, "weather": [1, 2], "version": "7.1"}}
    archive.write(path, "capture", msgspec.msgpack.encode(newer))
    assert plain(capture.read(path)) == plain(hung())
    newer = {**known, "version": "7.1", "frame": {**frame, "health": "radiant"}}
    archive.write(path, "capture", msgspec.msgpack.encode(newer))
    with pytest.raises(Unreadable, match=r"by frtop 7\.1 in a format"):
        capture.read(path)


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: data[:10], lambda data: data[:500], lambda data: b"PK" + data,
    lambda data: data[:32] + b"\0" * 50, lambda data: data.replace(b"capture ", b"blackbox"),
    lambda data: data[:-8] + bytes(8),
])  # fmt: skip
def test_a_damaged_capture_is_refused_with_a_sentence(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "x.cap"
    capture.write(path, hung(), {}, ())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Unreadable, match=r"x\.cap"):
        capture.read(path)
    with pytest.raises(Unreadable, match=r"x\.cap"):
        open_paths([path])


def test_a_missing_file_or_an_empty_folder_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="No such file"):
        open_paths([tmp_path / "none.cap"])
    with pytest.raises(Unreadable, match="leaves a black box only if a rank ends badly"):
        open_paths([tmp_path])


def test_the_newest_capture_of_a_folder_is_opened(tmp_path: Path) -> None:
    for name in ("b.cap", "a.cap"):
        capture.write(tmp_path / name, hung(), {}, ())
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / "broken.cap").write_text("oh")
    found = open_paths([tmp_path]).recorded
    assert found is not None
    assert found.path == str(tmp_path / "a.cap")
    assert any("b.cap" in note for note in found.notes)
    assert any("broken.cap" in note for note in found.notes)


@given(seed=st.integers(0, 2**32), recorded=st.booleans())
def test_flipped_bytes_give_a_frame_or_an_error(seed: int, recorded: bool, tmp_path: Path) -> None:
    path, source = tmp_path / "x.cap", SLEEPING if recorded else tmp_path / "intact.cap"
    chance = random.Random(seed)
    if not source.exists():
        capture.write(source, Scene(3).settle(0.5), {0: rows(5)}, ())
    data = bytearray(archive.read(source, "capture"))
    for _ in range(chance.randrange(1, 6)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    archive.write(path, "capture", bytes(data))
    with suppress(Unreadable):
        text(open_paths([path]))


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["/home/ann/bin/frtop", "watch", "--post", "https://host/SECRET"], ["frtop", "watch"]),
        (["frtop", "watch", "--exec", "page --token SECRET"], ["frtop", "watch"]),
        (["/x/frtop_tui/__main__.py", "--connect=SECRET"], ["frtop"]),
        ([], ["frtop"]),
    ],
)
def test_options_of_the_command_are_not_in_a_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], kept: list[str]
) -> None:
    monkeypatch.setattr("sys.argv", words)
    path = tmp_path / "x.cap"
    capture.write(path, hung(), {}, ())
    data = archive.read(path, "capture")
    assert msgspec.msgpack.decode(data)["argv"] == kept
    assert b"SECRET" not in data


def test_a_false_length_in_the_content_allocates_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.cap"
    capture.write(path, hung(), {}, ())
    data = archive.read(path, "capture")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for claim in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"):
        for name in (b"\xa6verdicts"[1:], b"hosts", b"ranks", b"argv"):
            at = data.index(name) + len(name)
            archive.write(path, "capture", data[:at] + claim + data[at:])
            with pytest.raises(Unreadable):
                capture.read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
