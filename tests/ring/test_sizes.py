"""Sizes of ops: integers that are read as they were written, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.ring_builder import RingBuilder
from frtop_probe.ring import layout, sizes
from frtop_probe.ring.reader import Ring
from frtop_probe.ring.sizes import Sizes

FORM: dict[str, Any] = {
    "kind": "all_to_all_single",
    "inputs": [["bfloat16", "cuda:0"]],
    "outputs": [["float32", "cpu"]],
    "splits": True,
}


@given(
    st.integers(1, 2**63),
    st.lists(st.integers(0, 2**32 - 1), max_size=60) | st.lists(st.integers(0, 2**64 - 1)),
)
def test_a_record_is_read_as_it_was_written(position: int, given_integers: list[int]) -> None:
    packed = sizes.pack(given_integers)
    assert packed is not None
    record = sizes.record(position, *packed)
    assert sizes.integers(record, position) == tuple(given_integers)
    assert sizes.integers(record, position + 1) is None
    assert len(record) <= sizes.chunks(packed[0]) * layout.CHUNK


@given(st.data())
def test_a_torn_record_is_not_read(data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=60))
    record = bytearray(sizes.record(5, *(sizes.pack(numbers) or (b"", 4))))
    at = data.draw(st.integers(layout.SIZES.size, len(record) - 1))
    record[at] ^= data.draw(st.integers(1, 255))
    assert sizes.integers(bytes(record), 5) is None


@pytest.mark.parametrize("impossible", [[-1], [2**64], [0] * 70_000])
def test_what_does_not_fit_is_not_written(impossible: list[int]) -> None:
    assert sizes.pack(impossible) is None


def test_sizes_are_decoded_by_the_form() -> None:
    integers = [1, 0, 1, 2, 6, 8, 1, 0, 1, 2, 5, 8, 2, 4, 2, 2, 1, 4]
    assert sizes.decode(FORM, integers) == Sizes(
        (("bfloat16", (6, 8), 1, "cuda:0"),), (("float32", (5, 8), 1, "cpu"),), (4, 2), (1, 4)
    )
    assert sizes.decode(FORM, integers[:-1]) is None
    assert sizes.decode(FORM, [*integers, 1]) is None


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), max_size=40))
def test_any_integers_are_decoded_or_refused(integers: list[int]) -> None:
    sizes.decode(FORM, integers)
    sizes.decode({"inputs": 7, "tag": 1}, integers)


@given(st.lists(st.integers(1, 90), min_size=1, max_size=60))
def test_a_record_is_read_until_it_is_overwritten(tmp_path: Path, lengths: list[int]) -> None:
    shape = layout.Shape(groups=4, sites=8, overflow=4, slots=16, chunks=32, marks=8, side=70_000)
    builder = RingBuilder(tmp_path, shape=shape)
    ring = Ring(builder.path)
    written = {}
    for number, length in enumerate(lengths):
        # Larger than any position: what overwrites a head must not happen to be equal to it.
        integers = (2**20 + number,) * length
        packed = sizes.pack(integers)
        assert packed is not None
        position = builder.add_sizes(integers)
        written[position] = integers
        oldest = position + sizes.chunks(packed[0]) - shape.chunks
        for before, expected in written.items():
            assert ring.sizes(before) == (expected if before >= oldest else None)
    ring.close()
