"""Files that somebody sends: frtop's own, dumps, stacks, answers of NCCL, logs."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from diagnosis.scenes import Scene
from files.boxes import BoxRecorder, write_boxes
from files.flightrecorder.test_bundle import page
from files.flightrecorder.writer import make_recorders, one_missing, pickle_like_torch
from files.logs.eras import TORCH_1_12, TORCH_2_4, one_late, raised, table
from files.test_nccl_ras import _GOOD
from frtop_probe import archive
from frtop_probe.ring.box_lock import BOX_KIND
from frtop_tui.errors import FrtopError
from frtop_tui.files import capture, nccl_ras
from frtop_tui.files.flightrecorder import dump_file
from frtop_tui.files.flightrecorder.dump import parse_dump
from frtop_tui.files.flightrecorder.file_names import RankPattern, parse_name, time_in_name
from frtop_tui.files.loader import open_paths
from frtop_tui.files.pyspy import stacks_of
from fuzz.mutations import Mutator, as_bytes, as_json, as_msgpack, as_pickle, as_text
from fuzz.shown import SCENES, show
from fuzz.target import Take, refused, target

KEEP: Final = 64


def opened(folder: Path, name: str, *, quotes: bool = False) -> Callable[[], bool]:
    """Opens a file of this name as `frtop open` does, and makes all that is made of its frame.

    If the frame `quotes` the file's words, `nan` may be one.
    """

    def take() -> bool:
        try:
            frame = open_paths([folder / name])
        except FrtopError as error:
            return refused(error)
        show(frame, folder / "again.frtop", quotes=quotes)
        return True

    return take


def content_of(scene: Scene, folder: Path) -> bytes:
    path = folder / "one.frtop"
    capture.write(path, scene.settle(), {}, ())
    return archive.read(path, capture.KIND)


def box_content_of(scene: Scene, folder: Path) -> bytes:
    (path,) = write_boxes(folder, BoxRecorder(scene).boxes()[:1])
    return archive.read(path, BOX_KIND)


def _archived(kind: str, name: str) -> Callable[[Path, ExitStack], Take]:
    def prepare(folder: Path, _: ExitStack) -> Take:
        take_file = opened(folder, name)

        def take(data: bytes) -> bool:
            archive.write(folder / name, kind, data)
            return take_file()

        return take

    return prepare


@target(
    "the content of a capture", as_msgpack,
    lambda folder: [content_of(make(), folder) for make in SCENES], most=200_000, quick=150,
)  # fmt: skip
def captures(folder: Path, stack: ExitStack) -> Take:
    return _archived(capture.KIND, "f.frtop")(folder, stack)


@target(
    "the content of a black box", as_msgpack,
    lambda folder: [box_content_of(make(), folder) for make in SCENES], most=200_000, quick=150,
)  # fmt: skip
def black_boxes(folder: Path, stack: ExitStack) -> Take:
    return _archived(BOX_KIND, "f.box")(folder, stack)


def _archives(folder: Path) -> Iterable[bytes]:
    path = folder / "a.frtop"
    for kind, content in ((capture.KIND, b"short" * 9), (BOX_KIND, b"x" * 70_000), ("other", b"")):
        archive.write(path, kind, content)
        yield path.read_bytes()


@target("the file around both: gzip, kind, version", as_bytes, _archives, most=100_000)
def archives(folder: Path, _: ExitStack) -> Take:
    path = folder / "a.frtop"

    def take(data: bytes) -> bool:
        path.write_bytes(data)
        archive.kind_of(path)
        try:
            archive.read(path, capture.KIND)
        except archive.ArchiveError as error:
            return refused(error)
        return True

    return take


def _dump_values() -> list[Any]:
    one = make_recorders(2)[1]
    one.ran("0", count=3)
    one.p2p("0", "send", 0, done=True)
    one.waits("0")
    return [one.values()]


def _as_dump(data: bytes, mutator: Mutator) -> bytes:
    """Other values in the same form, or other bytes."""
    if data[:1] != b"\x80":
        return as_json(data, mutator)
    if mutator.chance(0.5):
        return mutator.any_bytes(data)
    try:
        values = dump_file._load(data)
    except dump_file._UNPICKLING_ERRORS:
        return mutator.any_bytes(data)
    if mutator.chance(0.7):
        return as_pickle(values, mutator)
    try:
        return pickle_like_torch(mutator.value(values))
    except (KeyError, TypeError, ValueError, struct.error):  # it takes plain ones only
        return mutator.any_bytes(data)


def _dumps(_: Path) -> Iterable[bytes]:
    (values,) = _dump_values()
    yield pickle_like_torch(values)
    yield json.dumps(values).encode()
    yield json.dumps({"rank_0": values, "rank_1": json.dumps(values)}).encode()
    yield page(one_missing()[1:3], silent=1).encode()


@target(
    "Flight Recorder dumps: pickles, JSON, pages of the debug server", _as_dump, _dumps,
    most=60_000,
)  # fmt: skip
def dumps(folder: Path, _: ExitStack) -> Take:
    """Up to the plain values and what is read of them: most inputs end here."""
    path = folder / "nccl_trace_rank_0"

    def take(data: bytes) -> bool:
        path.write_bytes(data)
        taken = 0
        for keep in (None, KEEP):
            try:
                for one in dump_file.read_dumps(path, keep):
                    if one.values is not None:
                        parse_dump(path, one.values, KEEP)
                        taken += 1
            except FrtopError as error:
                refused(error)
        return taken > 0

    return take


@target("the same dumps, opened as a job", _as_dump, _dumps, most=60_000, quick=150)
def opened_dumps(folder: Path, _: ExitStack) -> Take:
    take_file = opened(folder, "dump_1", quotes=True)

    def take(data: bytes) -> bool:
        (folder / "dump_1").write_bytes(data)
        return take_file()

    return take


def _stacks(_: Path) -> Iterable[bytes]:
    call = "torch/distributed/distributed_c10d.py"
    frames = [
        {"name": "all_reduce", "filename": f"/lib/{call}", "line": 2501, "module": None,
         "locals": [{"name": "world_size", "addr": 1, "arg": True, "repr": "4"}]},
        {"name": "c10d::ops::wait", "filename": "", "module": "/lib/libtorch_cpu.so", "line": 0},
        {"name": "main", "filename": "/srv/train.py", "line": 20, "short_filename": "train.py"},
    ]  # fmt: skip
    thread = {"pid": 7, "thread_id": 139, "thread_name": "MainThread", "os_thread_id": 7,
              "active": True, "owns_gil": True, "frames": frames}  # fmt: skip
    yield json.dumps([thread, {**thread, "thread_name": None, "os_thread_id": 8}]).encode()


@target("stacks as py-spy prints them", as_json, _stacks, most=80_000)
def py_spy(folder: Path, _: ExitStack) -> Take:
    path = folder / "rank_1.pyspy.json"
    take_file = opened(folder, path.name, quotes=True)

    def take(data: bytes) -> bool:
        path.write_bytes(data)
        try:
            stacks_of(path)
        except FrtopError as error:
            return refused(error)
        return take_file()

    return take


@target("answers of NCCL's RAS", as_json, lambda _: [one.encode() for one in _GOOD], most=80_000)
def nccl_answers(folder: Path, _: ExitStack) -> Take:
    path = folder / "ncclras.json"
    take_file = opened(folder, path.name, quotes=True)

    def take(data: bytes) -> bool:
        path.write_bytes(data)
        try:
            nccl_ras.read(path)
        except FrtopError as error:
            return refused(error)
        return take_file()

    return take


def _logs(_: Path) -> Iterable[bytes]:
    for era in (TORCH_1_12, TORCH_2_4):
        yield b"\x1e".join("\n".join(lines).encode() for lines in one_late(era, world=3))
    said = [*raised(1, "ValueError: no"), *table((1, 1, "10:00:01"), (0, -9, "10:00:02"))]
    yield "\n".join(said).encode()


@target(
    "logs; \\x1e is between those of two ranks", as_text, _logs, most=40_000, quick=150,
)  # fmt: skip
def logs(folder: Path, _: ExitStack) -> Take:
    take_file = opened(folder, "logs", quotes=True)
    (folder / "logs").mkdir()

    def take(data: bytes) -> bool:
        for path in (folder / "logs").iterdir():
            path.unlink()
        for number, part in enumerate(data.split(b"\x1e")[:4]):
            (folder / "logs" / f"rank_{number}.log").write_bytes(part)
        return take_file()

    return take


@target(
    "names of files, and patterns of --ranks-from", as_text,
    lambda _: [
        b"nccl_trace_rank_container-node02_5\0host*_gpu{rank}", b"rank_3.pyspy.json\0{rank}",
        b"nccl_trace_rank_3_20250922_224717\0rank{rank}/trace.json", b"dump-node02_3\0*{rank}*",
        b"trace-local_rank0-1695400000000.pt.json\0a*b*c*{rank}",
    ],
    most=300,
)  # fmt: skip
def file_names(folder: Path, _: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        name, _, pattern = os.fsdecode(data).partition("\0")
        path = folder / name.replace("\0", "")
        found = parse_name(path)
        time_in_name(path)
        try:
            parse_name(path, RankPattern(pattern))
        except FrtopError as error:
            refused(error)
        return found.number is not None

    return take
