"""Groups and signatures of a ring: complete, or unknown."""

from __future__ import annotations

import struct
import time
from contextlib import closing
from pathlib import Path

import pytest

from agent.ring_builder import RingBuilder
from frtop_probe import wire
from frtop_probe.agent import checksum_blocks
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.ring_view import MAX_FOLDED, MAX_TEXT, MAX_TRANSPORTS, RingView
from frtop_probe.ring import layout
from frtop_probe.ring.layout import MAX_DESTROYED, Flag, Side
from frtop_probe.ring.rank_ranges import fold, unfold
from frtop_probe.ring.reader import OpKey, Ring
from frtop_probe.wire import Group, Signature, Transport
from frtop_tui.diagnosis.engine import Engine
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
        ring.refresh()
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
    remaining = [one.id for one in full.groups if not one.gone]
    assert remaining == [1, *range(made + 2 - MAX_DESTROYED, made + 2)]
    assert len(full.group_progress) == len(full.groups) == len(remaining) + MAX_DESTROYED
    assert full.status is not None
    assert full.status.ops == 2 * made
    frame = state.frame(0, 0)
    gone = [one for one in frame.ranks[0].groups.values() if one.gone]
    assert [one.name for one in gone] == list(map(str, [one.id for one in gone]))
    assert len(frame.groups) == len(remaining)
    late = JobState()
    late.apply("h", wire.Update("h", "i", made + 2, 0, 0, (full,), full=True), 0)
    assert late.frame(0, 0).ranks[0].groups == frame.ranks[0].groups
    assert late.frame(0, 0).ranks[0].group_progress == frame.ranks[0].group_progress
    assert frame.ranks[0].group_progress[1].number == made


@pytest.mark.parametrize("shape", [layout.FULL, layout.FULL._replace(groups=1)])
def test_the_last_ops_before_all_groups_are_destroyed_at_once_are_counted(
    tmp_path: Path, shape: layout.Shape
) -> None:
    builder, groups = RingBuilder(tmp_path, shape=shape), range(1, 3 + MAX_DESTROYED)
    for group in groups:
        builder.add_group(group, name=str(group))
    builder.op(1, done=True)
    with closing(Ring(builder.path)) as ring:
        rank = RingRank(1, ring, lives=True, pidfd=None)
        rank.update(time.monotonic_ns())
        builder.op(1, done=True)
        for group in groups:
            builder.add_entry(Side.GROUP, group, {"name": str(group), "destroyed": True})
        rank.update(time.monotonic_ns())
        (progress,) = (one for one in rank.full().group_progress if one.group == 1)
        assert progress.number == 2
        assert [one.gone for one in rank.full().groups if one.id == 1] == [True]


def test_ops_of_destroyed_groups_are_not_compared_with_those_of_others(tmp_path: Path) -> None:
    state, groups = JobState(), range(2, 3 + MAX_DESTROYED)
    now, builders, ranks = time.monotonic_ns(), [], []
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        builder = RingBuilder(tmp_path / str(number), shape=layout.FULL, rank=number)
        builder.standard_tables()
        builder.add_signature(2, "broadcast", inputs=[7])
        for group in groups:
            builder.add_group(group, ranks=f"{number},{number + 2}", name=str(group))
        builder.op(groups[0], signature=1 + number, done=True, age_s=60)
        ranks.append(RingRank(1 + number, Ring(builder.path), lives=True, pidfd=None))
        builders.append(builder)
    for _ in range(2):  # the last ops of quiet groups come second
        for rank in ranks:
            rank.update(now)
    full = tuple(rank.full() for rank in ranks)
    assert state.apply("h", wire.Update("h", "i", 1, now, 0, full, full=True), now)
    for number, builder in enumerate(builders):
        for group in groups:
            entry = {"name": str(group), "ranks": f"{number},{number + 2}", "exact": True}
            builder.add_entry(Side.GROUP, group, {**entry, "destroyed": True})
    news = tuple(filter(None, [rank.update(now) for rank in ranks]))
    assert state.apply("h", wire.Update("h", "i", 2, now, 0, news), now)
    frame = state.frame(now, 0)
    for number in (0, 1):
        assert frame.ranks[number].groups[groups[0]].gone
        assert frame.ranks[number].last_ops
    assert not Engine().judge(frame).frame.verdicts
    for rank in ranks:
        rank.close()


def test_a_late_agent_sends_what_an_early_one_sends_after_the_side_table_was_written_anew(
    tmp_path: Path,
) -> None:
    builder = RingBuilder(tmp_path)
    for group in range(1, 9):
        builder.add_group(group, name=str(group))
        builder.op(group, done=True, age_s=1)
    with closing(Ring(builder.path)) as ring:
        early = RingRank(1, ring, lives=True, pidfd=None)
        early.update(time.monotonic_ns())
        builder.begin_side_table()
        for number in (1, 7, 8):
            builder.add_group(number, name=str(number))
        with closing(Ring(builder.path)) as other:
            late = RingRank(1, other, lives=True, pidfd=None)
            for rank in (early, late, early, late):
                rank.update(time.monotonic_ns())
            ours, theirs = early.full(), late.full()
    assert [one.id for one in theirs.groups] == [1, 7, 8]
    assert theirs.groups == tuple(one for one in ours.groups if not one.gone)
    gone = {one.id for one in ours.groups if one.gone}
    assert theirs.group_progress == tuple(
        one for one in ours.group_progress if one.group not in gone
    )


BEYOND = layout.SMALL.groups


def test_ops_of_a_group_that_is_described_while_they_are_read_are_counted(tmp_path: Path) -> None:
    builder = RingBuilder(tmp_path)
    builder.add_group(BEYOND)
    with closing(Ring(builder.path)) as ring:
        view = RingView(ring)
        builder.op(BEYOND)
        builder.op(BEYOND + 1)  # described after the side table was read
        for _ in range(300):
            builder.op(BEYOND)
        assert [row.group for row in view.group_rows()] == []
        builder.add_group(BEYOND + 1, name="1")
        ring.refresh()
        assert {row.group: row.number for row in view.group_rows()} == {BEYOND: 301, BEYOND + 1: 1}


def test_a_late_agent_does_not_compare_numbers_of_groups_whose_ops_it_missed(
    tmp_path: Path,
) -> None:
    builder = RingBuilder(tmp_path)
    for group in (1, BEYOND):
        builder.add_group(group, name=str(group))
    with closing(Ring(builder.path)) as ring, closing(Ring(builder.path)) as other:
        early = RingRank(1, ring, lives=True, pidfd=None)
        builder.op(BEYOND, done=True)
        early.update(time.monotonic_ns())
        for _ in range(2 * layout.SMALL.slots):
            builder.op(1, done=True)
            if not builder.sequence % 300:
                early.update(time.monotonic_ns())
        builder.add_group(BEYOND + 1, name="new")
        late = RingRank(1, other, lives=True, pidfd=None)
        for rank in (early, late, early, late):
            rank.update(time.monotonic_ns())
        builder.add_group(BEYOND + 2, name="newer")
        for rank in (early, late):
            rank.update(time.monotonic_ns())
        exact = [one.exact for one in early.full().groups]
        assert exact == [True] * 4
        assert [(one.id, one.exact) for one in late.full().groups] == [
            (1, True), (BEYOND, False), (BEYOND + 1, False), (BEYOND + 2, True)
        ]  # fmt: skip


def test_an_impossible_number_of_a_group_beyond_the_table_is_left_out(tmp_path: Path) -> None:
    builder = RingBuilder(tmp_path)
    builder.add_group(BEYOND)
    builder.numbers[BEYOND] = layout.LONGEST - 2
    for _ in range(3):
        builder.op(BEYOND)
    with closing(Ring(builder.path)) as ring:
        rank = RingRank(1, ring, lives=True, pidfd=None)
        news = rank.update(time.monotonic_ns())
        assert news is not None
        update = wire.Update("h", "i", 1, 0, 0, ranks=(news,))
        assert wire.decode_update(wire.encode(update)) == update


def test_messages_of_destroyed_groups_make_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksum_blocks, "MAX_CHANNELS", 2)
    builder = RingBuilder(tmp_path)
    builder.add_signature(1, "send", peer=3)
    with closing(Ring(builder.path)) as ring:
        rank = RingRank(1, ring, lives=False, pidfd=None)
        for group in (1, 2, 3, BEYOND):
            builder.begin_side_table()
            builder.add_signature(1, "send", peer=3)
            builder.add_group(group)
            sequence = builder.op(group, flags=Flag.P2P | Flag.DEVICE)
            builder.map[builder._slot(sequence) + layout.SLOT_MESSAGE] = 1
            row = layout.GROUPS_OFFSET + group * layout.GROUP_ROW.size
            if group < BEYOND:
                struct.pack_into("=3Q", builder.map, row, sequence, 0, 1)
            for _ in range(2):
                rank.update(time.monotonic_ns() + 10**10)
            (found,) = rank.full().messages or ()
            assert (found.group, found.p2p, found.complete) == (group, 1, True)
