"""Counters near the end of a width, with both kernels: what readers see goes on as before.

Nobody waits for 4,294,967,296 ops: the recorder's counters are set to just below in the rank's own
memory, and the program goes on. Numbers of messages have 16 bits and wrap for real.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from frtop_probe import wire
from frtop_probe.agent.histories import history
from frtop_probe.agent.ring_view import RingView
from frtop_probe.recorder.native.library import Library, NotUsableError
from frtop_probe.ring import layout
from frtop_probe.ring.layout import MarkKind
from frtop_probe.ring.marks import read_marks, read_reports
from frtop_tui.files.histories import ops_of
from recorder.interactive_rank import InteractiveRank, interactive_ranks

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
EDGES: Final = (2**31, 2**32, 2**53)
BEFORE: Final = 5
POKE: Final = """
from frtop_probe.recorder.native.install import NativeHook
recorder = lifecycle.recorder
is_native = isinstance(recorder.hook, NativeHook)
word = ctypes.c_int64.from_address

def set_count(function, value):
    "Sets what an `itertools.count` gives next: CPython keeps it in a word."
    word(id(function.__self__) + 16).value = value

def find_state():
    "Where the native kernels keep their counters: after the ring's address and its shape."
    ring = ctypes.addressof(ctypes.c_char.from_buffer(recorder.ring.map))
    wanted = ring.to_bytes(8, "little") + recorder.ring.shape.groups.to_bytes(8, "little")
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps if " rw-p 00000000 00:00 0" in line]
    for begin, end in ranges:
        at = int(begin, 16)
        place = ctypes.string_at(at, int(end, 16) - at).find(wanted)
        if place >= 0 and word(at + place + 8 * 14).value == recorder.ring.cells[3]:
            return at + place + 8 * 14  # behind eleven words of the shape, the flag, the cells

def set_all(value):
    "Sets what ops, groups, chunks of sizes and marks are numbered with next."
    if is_native:
        state = find_state()
        for n in (0, 1, 3):
            word(state + 8 * n).value = value - 1
        for n in range(4096):
            group = word(state + 32 + 16 * n + 8).value
            if group:
                word(group + 8).value = word(group + 16).value = value - 1
        return
    set_count(recorder.ring.next_sequence, value)
    for group in recorder.groups.known.values():
        set_count(group.next_number, value)
        set_count(group.next_p2p, value)
    word(id(recorder.signatures._chunks) + 16).value = value
    for function in (recorder.ring.marks.begin,):
        names = function.__code__.co_freevars
        set_count(function.__closure__[names.index("next_sequence")].cell_contents, value)
"""


@pytest.fixture(params=["python", "native"])
def rank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InteractiveRank]:
    native = request.param == "native"
    if native:
        try:
            Library(torch)
        except NotUsableError as error:
            pytest.skip(str(error))
    with interactive_ranks(tmp_path / "rings", 1, "fake", FRTOP_NATIVE=str(int(native))) as (rank,):
        rank.run("dist.all_reduce(torch.ones(4)); dist.send(torch.ones(1), 1)")
        rank.run("import frtop_probe; lifecycle.recorder.ring.marks.instant(1, 1)")
        rank.run(POKE)
        rank.run(f"assert is_native is {native}")
        yield rank


def ops_in(rank: InteractiveRank, limit: int) -> tuple[wire.Op, ...]:
    """The newest ops as an operator gets them."""
    source: Any = SimpleNamespace(ring=rank.ring, view=RingView(rank.ring))
    rank.ring.refresh()
    found = asyncio.run(history(source, limit))
    sent = wire.HistoryResponse(1, "host", 1, found)
    received = wire.decode_response(wire.encode(sent))
    assert isinstance(received, wire.HistoryResponse)
    return ops_of(received.history)


@pytest.mark.parametrize("edge", EDGES)
def test_ops_go_on_past_the_edge(rank: InteractiveRank, edge: int) -> None:
    first = edge - BEFORE
    rank.run(f"set_all({first})")
    rank.run(
        "for n in range(10): dist.all_to_all_single(torch.ones(8 + n), torch.ones(8 + n),"
        " [1 + n] + [1] * 7, [1 + n] + [1] * 7)"
    )
    rank.run("for n in range(10): dist.send(torch.ones(1), 1)")
    rank.wait_for_heartbeats()
    ops = ops_in(rank, 20)
    exchanged, sent = ops[:10], ops[10:]
    assert [op.sequence for op in ops] == list(range(first, first + 20))
    assert [op.number for op in exchanged] == list(range(first, first + 10))
    assert [op.number for op in sent] == list(range(first, first + 10))
    splits = [op.signature and op.signature.in_splits for op in exchanged]
    assert splits == [(1 + n, *[1] * 7) for n in range(10)]
    assert all(op.done_ns > 0 for op in ops)
    view = RingView(rank.ring)
    live, _ = view.ops(20)
    assert [op.sequence for op in live] == [op.sequence for op in ops]
    assert not rank.ring.pending()


@pytest.mark.parametrize("edge", EDGES)
def test_marks_go_on_past_the_edge(rank: InteractiveRank, edge: int) -> None:
    first = edge - BEFORE
    rank.run(f"set_all({first})")
    rank.run(
        f"marks = recorder.ring.marks\nfor n in range(10):\n"
        f"    at = marks.begin({int(MarkKind.STEP)}, {first} + n)\n    marks.end(at)\n"
        f"for n in range(10): marks.report({first} + n, 1, n / 2)"
    )
    rows = [row for row in read_marks(rank.ring) if row.sequence >= first]
    assert [row.sequence for row in rows] == list(range(first, first + 10))
    assert [row.number for row in rows] == list(range(first, first + 10))
    assert all(row.end_ns for row in rows)
    reports, newest = read_reports(rank.ring, first)
    assert [(row.step, row.value) for row in reports] == [(first + n, n / 2) for n in range(10)]
    assert newest == first + 19


def test_a_whole_ring_is_written_past_the_edge(rank: InteractiveRank) -> None:
    rank.run(f"set_all({2**32 - BEFORE})")
    rank.run(f"for n in range({layout.FULL.slots + 100}): dist.all_reduce(torch.ones(1))")
    rank.wait_for_heartbeats()
    assert rank.newest() == 2**32 - BEFORE + layout.FULL.slots + 99
    assert len(ops_in(rank, 0)) == layout.FULL.slots
    assert not rank.ring.pending()


def test_numbers_of_messages_begin_again(rank: InteractiveRank) -> None:
    rank.run("dist.send(torch.ones(1), 1, tag=7)")
    rank.run(
        f"for n in range({layout.MESSAGES - 2} * is_native): dist.send(torch.ones(1), 1, tag=7)\n"
        "for group in recorder.groups.known.values():\n"
        f"    for count in group.channels.values(): set_count(count, {layout.MESSAGES - 1})"
    )
    rank.run("for n in range(3): dist.send(torch.ones(1), 1, tag=7)")
    rank.wait_for_heartbeats()
    rank.ring.refresh()
    head = rank.newest()
    found = [rank.ring.event(head - n) for n in (3, 2, 1, 0)]
    assert [one and one.message for one in found][1:] == [layout.MESSAGES, 1, 2]
