"""Phrases that several sentences share."""

from __future__ import annotations

import pytest

from diagnosis.scenes import C10D, frame, one_sleeps, only
from frtop_probe import wire
from frtop_tui.diagnosis.words.phrases import named_op


@pytest.mark.parametrize(("exact", "text"), [
    (True, "op #57 of default_pg"), (False, "an op of default_pg"),
])  # fmt: skip
def test_an_op_of_unknown_kind_is_named_as_far_as_it_is_known(*, exact: bool, text: str) -> None:
    group = wire.Group(1, "0", "default_pg", "gloo", "0-3", exact=exact)
    op = wire.Op(sequence=57, number=57, group=1, signature=None, site=None, issued_ns=0)
    assert named_op(op, group) == text


@pytest.mark.parametrize(("site", "told"), [
    ("lib/python3/site-packages/fabric/comm.py:247",
     " at fabric/comm.py:247, from train.py:40 (validate)"),
    ("train.py:20", " at train.py:20"),  # it issued the op there, and waits elsewhere
    (None, " at train.py:40 (validate)"),
])  # fmt: skip
def test_a_wait_in_a_framework_is_told_with_the_line_of_the_program(
    site: str | None, told: str
) -> None:
    scene = one_sleeps(site=site)
    fabric = frame("/lib/python3/site-packages/fabric/comm.py:247")
    for rank in (0, 1, 3):
        scene.at(
            rank, frame(f"{C10D}:3024", "all_reduce"), fabric, frame("train.py:40", "validate")
        )
    evidence = only(scene.settle()).evidence
    assert any(line.startswith("rank 0 waits in all_") and line.endswith(told) for line in evidence)
