"""A reader on another core of aarch64 sees stores in any order: it gets each event whole, or not.

An emulator on x86-64 does not reorder stores. So a reader is shown what the writer stored in
orders that are made up: each word has any of the values that it ever had, but never an older one
than before.
"""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.recorder.own_ring import OwnRing, create
from frtop_probe.ring import bulk_read, layout
from frtop_probe.ring.layout import MarkKind, Shape, Side, StatusCell
from frtop_probe.ring.marks import read_marks, read_reports
from frtop_probe.ring.reader import OpKey, Ring

TINY = Shape(groups=4, sites=8, overflow=4, slots=4, chunks=8, marks=4, side=66 * 1024)
LOOKS = 3


def write(writer: OwnRing, what: str, n: int) -> None:
    """Every field of an event follows from its number."""
    if what == "op":
        body = layout.SLOT_BODY.pack(n, n, n, n, n % 4, n % 7, n % 5, 0, n % 3, 0, 0, 0, n)
        writer.write_slot(n, body)
    elif what == "mark":
        writer.marks.instant(MarkKind.STEP, n)
    elif what == "report":
        writer.marks.report(n, n, float(n))
    elif what == "group":
        writer.write_entry(Side.GROUP, n, {"name": n, "destroyed": n % 3 > 0})
    elif what == "anew":
        writer._full = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(layout.LAST, Side.GROUP, 1)
            writer.drop_old_entries()
    else:
        writer.write_entry(Side.FORM, n, {"number": n})


def check(ring: Ring, counts: dict[str, int]) -> None:
    for row in ring.events(0, TINY.slots)[0]:
        n = row.sequence
        assert (row.issued_ns, row.number, row.thread, row.site) == (n, n, n, n % 5)
        assert row.key == OpKey(n % 4, n % 7, n % 3, n)
    head = ring.cell(StatusCell.HEAD)
    for slots in bulk_read.slots(ring, 1, head):
        assert slots.sequence == slots.issued == slots.number == slots.thread == slots.record
    assert {row.number for row in read_marks(ring)} <= set(range(1, counts["mark"] + 1))
    for report in read_reports(ring)[0]:
        assert report.step == report.name == report.value
    ring.refresh()
    assert all(form == {"number": n} for n, form in ring.forms.items())


ACTIONS = ("op", "mark", "report", "form", "group", "anew")


@given(st.lists(st.sampled_from(ACTIONS), max_size=16), st.randoms())
def test_events_are_read_whole_or_not_at_all(
    tmp_path: Path, actions: list[str], random: Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "FULL", TINY)
        writer = create([tmp_path])
    seen = tmp_path / f"seen-{writer.path.name}"
    seen.write_bytes(bytes(writer.map))
    last = writer.words.tolist()
    stored: dict[int, list[int]] = {}
    counts = dict.fromkeys(ACTIONS, 0)
    for what in actions:
        counts[what] += 1
        write(writer, what, counts[what])
        now = writer.words.tolist()
        for at, (before, after) in enumerate(zip(last, now, strict=True)):
            if before != after:
                stored.setdefault(at, [before]).append(after)
        last = now
    with seen.open("r+b", buffering=0) as file:
        ring, shown = Ring(seen), dict.fromkeys(stored, 0)
        for look in range(LOOKS + 1):
            for at, values in stored.items():
                newest = len(values) - 1
                shown[at] = newest if look == LOOKS else random.randint(shown[at], newest)
                file.seek(8 * at)
                file.write(struct.pack("=q", values[shown[at]]))
            check(ring, counts)
    assert sorted(ring.forms) == list(range(1, counts["form"] + 1)), "nothing is lost for good"
    late = Ring(seen)
    assert (late.groups, late.newest_group) == (ring.groups, ring.newest_group)
    late.close()
    assert {*range(3, counts["group"] + 1, 3), counts["group"]} - {0} <= ring.groups.keys()
    events = [row.sequence for row in ring.events(0, TINY.slots)[0]]
    assert events == list(range(1, counts["op"] + 1))[-TINY.slots :]
    ring.close()


def test_a_table_written_anew_counts_though_its_length_is_seen_last(tmp_path: Path) -> None:
    writer = create([tmp_path])
    for n in (1, 2):
        write(writer, "group", n)
    seen = tmp_path / f"seen-{writer.path.name}"
    length = writer.cells[StatusCell.SIDE_USED]
    write(writer, "anew", 1)
    shown = bytearray(writer.map)
    at = layout.CELLS_OFFSET + 8 * StatusCell.SIDE_USED
    struct.pack_into("=q", shown, at, length)
    seen.write_bytes(shown)
    ring = Ring(seen)
    assert not ring.groups
    with seen.open("r+b") as file:
        file.write(bytes(writer.map))
    ring.refresh()
    assert ring.groups.keys() == {2}
    ring.close()
