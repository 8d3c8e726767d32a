"""A ring is made longer while its rank trains: no op is lost, none is held, none stays pending."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from frtop_probe.ring import layout
from frtop_probe.ring.layout import Flag, StatusCell
from frtop_probe.wire.recording import RecordedNow
from recorder.interactive_rank import InteractiveRank, Ranks, interactive_ranks, run
from waiting import wait_for

pytestmark = pytest.mark.torch
MANY = 24_000


@pytest.fixture
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    folder = tmp_path_factory.mktemp("longer") / "rings"
    with interactive_ranks(folder, 2) as found:
        yield tuple(found)


def lengthen(rank: InteractiveRank) -> RecordedNow:
    reply, _ = rank.request(ask="ChangeRecording", longer=True)
    assert reply["error"] == "", reply
    return RecordedNow(**reply["recorded"])


def test_what_was_pending_ends_and_what_came_after_is_there(ranks: Ranks) -> None:
    full = layout.FULL
    run(ranks, "[dist.all_reduce(torch.ones(1)) for _ in range(100)]")
    rank, ring = ranks[0], ranks[0].ring
    rank.start("kept = dist.all_reduce(torch.ones(4), async_op=True)\n"
               "other = dist.new_group([0])\n"
               f"[dist.all_reduce(torch.ones(1), group=other) for _ in range({MANY})]")  # fmt: skip
    wait_for(lambda: rank.newest() > 9000, "ops beside a pending one")
    found = lengthen(rank)
    assert (found.slots, found.longer_slots) == (full.more, full.more)
    assert found.ring_bytes == full.longest
    assert found.longer_bytes == full.longest - full.size
    rank.expect("done")
    (kept,) = ring.pending()
    assert ring.cell(StatusCell.PENDING_LOST) == 0

    first = ring.cell(StatusCell.LONGER_FROM)
    assert 9000 < first < MANY
    rows, lost = ring.events(0, 2**40)
    assert lost == rows[0].sequence - 1  # nothing in between
    assert len(rows) == rank.newest() - (first - full.slots) + 1 > full.slots
    assert all(row.done_ns for row in rows if row.sequence != kept.sequence)

    assert kept.sequence < rank.newest() - full.slots  # so it is in the overflow
    rank.run("import threading\n"
             "work = dist.all_reduce(torch.ones(1), group=other, async_op=True)\n"
             "thread = threading.Thread(target=work.wait)\n"
             "thread.start(); thread.join()")  # fmt: skip
    waited = ring.event(rank.newest())
    assert waited is not None
    assert Flag.ELSEWHERE in waited.flags
    assert Flag.ELSEWHERE not in rows[-1].flags

    rank.start("kept.wait()")
    ranks[1].start("dist.all_reduce(torch.ones(4))")
    for one in ranks:
        one.expect("done")
    wait_for(lambda: not ring.pending(), "the end of the oldest op")
    assert not ranks[1].ring.cell(StatusCell.LONGER_FROM)


def test_a_job_may_start_with_it(tmp_path: Path) -> None:
    with interactive_ranks(tmp_path / "rings", 1, FRTOP_LONGER_RING="1") as (rank,):
        rank.run("[dist.all_reduce(torch.ones(1)) for _ in range(20_000)]")
        rows, lost = rank.ring.events(0, 2**40)
        assert lost == 0
        assert len(rows) == rank.newest() >= 20_000
