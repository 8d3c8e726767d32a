"""Groups and signatures of a ring: complete, or unknown."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from agent.ring_builder import RingBuilder
from frtop_probe import wire
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.ring_view import MAX_FOLDED, MAX_TEXT, MAX_TRANSPORTS, RingView
from frtop_probe.ring import layout
from frtop_probe.ring.layout import MAX_DESTROYED, Side
from frtop_probe.ring.rank_ranges import fold, unfold
from frtop_probe.ring.reader import OpKey, Ring
from frtop_probe.wire import Group, Signature, Transport
from frtop_tui.job.record import MAX_GONE
from frtop_tui.job.state import JobState


def group_and_signature(folder: Path, ranks: object) -> tuple[Group, Signature]:
    """A group with these members, and the signature of the call that made it."""
    builder = RingBuilder(folder, shape=layout.FULL)
    entry = {"name": "1", "description": "dp", "backend": "nccl", "ranks": ranks, "exact": True}
    builder.add_entry(Side.GROUP, 1, entry)
    builder.add_entry(Side.FORM, 1, {"kind": "new_group", "members": ranks})
    with closing(Ring(builder.path)) as ring:
        ring.refresh()
        view = RingView(ring)
        group, signature = view.group(1), view.signature(OpKey(0, 1, 0, 0), None)
    assert group is not None
    assert signature is not None
    return group, signature


def test_large_groups_have_all_members(tmp_path: Path) -> None:
    members = tuple(range(0, 16_384, 8))
    group, signature = group_and_signature(tmp_path, fold(members))
    assert unfold(group.ranks) == members
    assert unfold(signature.members or "") == members


@pytest.mark.parametrize("ranks", [7, None, ["0-3"], "0-3\N{ARABIC-INDIC DIGIT THREE}",
                                   "0," * MAX_FOLDED])  # fmt: skip
def test_malformed_members_are_unknown(tmp_path: Path, ranks: object) -> None:
    group, signature = group_and_signature(tmp_path, ranks)
    assert group.ranks == ""
    assert signature.members is None


@pytest.mark.parametrize("figure", [1e308, float("inf"), -1e305, 10**40])
def test_a_figure_that_no_message_can_hold_is_unknown(tmp_path: Path, figure: float) -> None:
    builder = RingBuilder(tmp_path)
    builder.add_entry(Side.GROUP, 1, {"name": "1", "timeout_s": figure})
    with closing(Ring(builder.path)) as ring:
        ring.refresh()
        group = RingView(ring).group(1)
    assert group is not None
    assert group.timeout_s == 0.0


def test_transports_are_unknown_until_the_rank_has_said_so(tmp_path: Path) -> None:
    builder = RingBuilder(tmp_path)
    with closing(Ring(builder.path)) as ring:
        view = RingView(ring)
        assert view.transports() is None
        builder.add_entry(Side.TRANSPORTS, 0, [["DeepEP", "module deep_ep is imported"]])
        ring.refresh()
        assert view.transports() == (Transport("DeepEP", "module deep_ep is imported"),)
        builder.add_entry(Side.TRANSPORTS, 0, {"malformed": 1})
        builder.add_entry(Side.TRANSPORTS, 0, [["x" * 9000, "\ud800"], *[["y", "z"]] * 100])
        ring.refresh()
        found = view.transports()
    assert found is not None
    assert len(found) == MAX_TRANSPORTS
    assert (len(found[0].name), found[0].sign) == (MAX_TEXT, "?")


def test_a_group_beyond_the_table_of_groups_is_counted_by_its_ops(tmp_path: Path) -> None:
    builder = RingBuilder(tmp_path, shape=layout.SMALL)
    beyond = layout.SMALL.groups
    for group in (1, beyond, beyond + 1):
        builder.add_group(group, name=str(group))
        builder.op(group)
    with closing(Ring(builder.path)) as ring:
        ring.refresh()
        view = RingView(ring)
        counted = {row.group: (row.number, row.sequence) for row in view.group_rows()}
        assert counted == {1: (1, 1), beyond: (1, 2), beyond + 1: (1, 3)}
        for _ in range(2 * layout.SMALL.longest // layout.SLOT_SIZE):
            builder.op(beyond)
        rows = {row.group: row for row in view.group_rows()}
        last = builder.sequence
        assert (rows[beyond].number, rows[beyond].sequence) == (last - 2, last)
        assert view.status().ops == last
        lost = view.last_op(rows[beyond + 1])
        assert (lost.number, lost.signature, lost.dated) == (1, None, False)


def test_destroyed_groups_leave_agent_and_operator_but_for_the_last(tmp_path: Path) -> None:
    made, state = 3 * MAX_DESTROYED, JobState()
    builder = RingBuilder(tmp_path, shape=layout.FULL)
    builder.add_group(1, ranks="0-1")
    with closing(Ring(builder.path)) as ring:
        rank = RingRank(1, ring, lives=True, pidfd=None)
        state.apply("h", wire.Update("h", "i", 1, 0, 0, full=True), 0)
        for group in range(2, made + 2):
            builder.add_group(group, ranks="0-1", name=str(group))
            builder.op(1, done=True)
            builder.op(group, done=True)
            entry = {"name": str(group), "ranks": "0-1", "exact": True, "destroyed": True}
            builder.add_entry(Side.GROUP, group, entry)
            news = rank.update(time.monotonic_ns())
            assert news is not None
            assert state.apply("h", wire.Update("h", "i", group, 0, 0, ranks=(news,)), 0)
        full = rank.full()
    assert [one.id for one in full.groups] == [1, *range(made + 2 - MAX_DESTROYED, made + 2)]
    assert len(full.group_progress) == len(full.groups)
    assert full.status is not None
    assert full.status.ops == 2 * made
    frame = state.frame(0, 0)
    assert len(frame.groups) == len(full.groups)
    assert len(frame.ranks[0].group_progress) <= len(full.groups) + MAX_GONE
    assert frame.ranks[0].group_progress[1].number == made
