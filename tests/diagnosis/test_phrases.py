"""Phrases that several sentences share."""

from __future__ import annotations

import pytest

from frtop_probe import wire
from frtop_tui.diagnosis.words.phrases import named_op


@pytest.mark.parametrize(("exact", "text"), [
    (True, "op #57 of default_pg"), (False, "an op of default_pg"),
])  # fmt: skip
def test_an_op_of_unknown_kind_is_named_as_far_as_it_is_known(*, exact: bool, text: str) -> None:
    group = wire.Group(1, "0", "default_pg", "gloo", "0-3", exact=exact)
    op = wire.Op(sequence=57, number=57, group=1, signature=None, site=None, issued_ns=0)
    assert named_op(op, group) == text
