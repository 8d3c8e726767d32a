"""Sends and receives are sampled on both sides, and nothing of them is held longer than before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from features.tensor_checks.sampled_ranks import sampled, samples, state, watch
from frtop_tui.features.tensor_checks.samples import RankSample, peer_of
from recorder.interactive_rank import Ranks, interactive_ranks, notes, run

pytestmark = pytest.mark.torch

STAGES = """
def stages(batches, bad=-1):
    for batch in range(batches):
        x = torch.full((4, 2), float(batch))
        if rank:
            dist.recv(x, rank - 1)
        y = x + rank
        if rank == 1 and batch == bad:
            y[1, 1] = float("nan")
        if rank < 2:
            dist.isend(y, rank + 1).wait()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    folder = tmp_path_factory.mktemp("messages") / "rings"
    with interactive_ranks(folder, 3) as found:
        run(tuple(found), STAGES)
        yield tuple(found)


def rows(ones: list[RankSample]) -> list[tuple[int, str, str, int | None, int]]:
    found = [(one.rank, one.sample.role, one.sample.taken, peer_of(one), one.sample.message)
             for one in sorted(ones, key=lambda one: (one.rank, one.sample.at_ns))]  # fmt: skip
    first = min(one[4] for one in found)
    return [(*one[:4], one[4] - first) for one in found]


def test_what_is_sent_and_what_is_received_is_sampled(ranks: Ranks) -> None:
    found = sampled(ranks, "stages(5)")
    assert sum(found.equal_messages.values()) == 10
    assert not found.any_fault
    assert (found.one_sided, found.unclear_messages) == (0, 0)
    assert [state(rank).unseen for rank in ranks] == [0, 0, 0]


def test_a_nan_is_named_where_it_is_sent_first(ranks: Ranks) -> None:
    before = [len(notes(rank)) for rank in ranks]
    found = sampled(ranks, "stages(5, bad=2)")
    (bad,) = found.bad
    assert (bad.rank, bad.what, bad.received) == (1, "NaN", 3)
    assert (bad.sample.sample.role, bad.sample.sample.nans, peer_of(bad.sample)) == ("sent", 1, 2)
    assert bad.sample.sample.shape == "[4, 2]"
    assert not found.messages  # it arrived as it was sent
    new = [notes(rank)[old:] for rank, old in zip(ranks, before, strict=True)]
    assert any("1 NaN in what send #" in one for one in new[1])
    assert any("1 NaN in what recv #" in one for one in new[2])


def test_both_sides_choose_the_same_messages(ranks: Ranks) -> None:
    """Though one has twice as many ops, and also where each message has a tag of its own."""
    found = sampled(ranks, "stages(9)", every=3)
    assert (sum(found.equal_messages.values()), found.one_sided) == (6, 0)
    found = sampled(ranks, """
for tag in range(12):
    if rank == 0: dist.send(torch.tensor([tag]), 1, tag=100 + tag)
    if rank == 1: dist.recv(torch.empty(1, dtype=torch.int64), 0, tag=100 + tag)
""", every=4)  # fmt: skip
    assert (sum(found.equal_messages.values()), found.one_sided) == (3, 0)


def test_a_buffer_that_changes_while_it_is_sent_is_named(ranks: Ranks) -> None:
    """The receive is posted once the sender has written to its buffer again."""
    found = sampled(ranks, """
gate = torch.zeros(1)
for value in range(6):
    big = torch.full((1 << 20,), float(value))
    if rank == 0:
        work = dist.isend(big, 1, tag=7)
        if value == 4: big += 0.5
        dist.send(gate, 1, tag=8); work.wait()
    if rank == 1:
        dist.recv(gate, 0, tag=8); dist.recv(big, 0, tag=7); saved[value] = big[0].item()
""")  # fmt: skip
    ranks[1].run("assert saved[4] == 4.5, saved")
    (one,) = found.messages
    assert (one.channel[1:], one.changed, one.differing) == ((0, 1, 7), True, 1)
    assert found.named == (0,)


def test_other_ways_to_send_and_receive(ranks: Ranks) -> None:
    watch(ranks, ops=100)
    run(ranks, """
ring = [dist.P2POp(dist.isend, torch.full((3,), float(rank)), (rank + 1) % 3),
        dist.P2POp(dist.irecv, torch.empty(3), (rank - 1) % 3)]
for work in dist.batch_isend_irecv(ring): work.wait()
""")  # fmt: skip
    ring = [row for row in rows(samples(ranks)) if row[0] == 0]
    assert [row[1:4] for row in ring] == [
        ("sent", "issue", 1), ("sent", "wait", 1), ("received", "wait", 2),
    ]  # fmt: skip
    watch(ranks, ops=100)
    run(ranks, """
if rank == 0: dist.send(torch.ones(3), 1)
if rank == 1: saved["from"] = dist.recv(torch.empty(3))
""")  # fmt: skip
    found = rows(samples(ranks))
    assert [row[:4] for row in found] == [(0, "sent", "issue", 1), (1, "received", "wait", None)]
    found = rows_without_inputs(ranks)
    assert {row[1] for row in found} == {"received"}
    assert len(found) == 4


def rows_without_inputs(ranks: Ranks) -> list[tuple[int, str, str, int | None, int]]:
    watch(ranks, ops=100, inputs=False)
    run(ranks, "stages(2)")
    return rows(samples(ranks))


def test_a_dropped_handle_is_not_kept_alive(ranks: Ranks) -> None:
    watch(ranks, ops=100, seconds=60)
    run(ranks[:2], """
import gc, weakref
if rank == 0:
    dropped = torch.ones(1000)
    gone = weakref.ref(dropped)
    work = dist.isend(dropped, 1, tag=30)
    kept = weakref.ref(work)
if rank == 1:
    dist.recv(torch.empty(1000), 0, tag=30)
""")  # fmt: skip
    ranks[0].run("""
numbers = lifecycle.recorder.watch
wait_for(lambda: all(one.handle for one in numbers.unfinished.values()))
assert kept() is not None and len(numbers.unfinished) == 1
del work
wait_for(lambda: kept() is None)
assert not numbers.unfinished
del dropped
gc.collect()
wait_for(lambda: gone() is None)
""")
    watch(ranks)
    assert state(ranks[0]).unseen == 0  # it was read when it was sent
