"""What a ring says, in the words of the wire: whole, or not at all."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from agent.ringmaker import RingMaker
from frtop_probe.agent.ringview import MAX_FOLDED, RingView
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Side
from frtop_probe.ring.rank_ranges import fold, unfold
from frtop_probe.ring.reader import Ring
from frtop_probe.wire import Group, Signature


def told(folder: Path, ranks: object) -> tuple[Group, Signature]:
    """A group with these members, and the call that made it."""
    maker = RingMaker(folder, shape=layout.FULL)
    entry = {"name": "1", "description": "dp", "backend": "nccl", "ranks": ranks, "exact": True}
    maker.side(Side.GROUP, 1, entry)
    maker.side(Side.SIGNATURE, 1, {"kind": "new_group", "members": ranks})
    with closing(Ring(maker.path)) as ring:
        ring.refresh()
        view = RingView(ring)
        group, signature = view.group(1), view.signature(1, None)
    assert group is not None
    assert signature is not None
    return group, signature


def test_no_member_of_a_large_group_is_lost(tmp_path: Path) -> None:
    members = tuple(range(0, 16_384, 8))
    group, signature = told(tmp_path, fold(members))
    assert unfold(group.ranks) == members
    assert unfold(signature.members or "") == members


@pytest.mark.parametrize("ranks", [7, None, ["0-3"], "0-3\N{ARABIC-INDIC DIGIT THREE}",
                                   "0," * MAX_FOLDED])  # fmt: skip
def test_members_that_make_no_sense_are_unknown(tmp_path: Path, ranks: object) -> None:
    group, signature = told(tmp_path, ranks)
    assert group.ranks == ""
    assert signature.members is None
