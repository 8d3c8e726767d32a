"""What may vary at every op costs no memory, and what identifies an op is never lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe.consistency.checksums import added, splits_digest
from frtop_probe.recorder.ops.reduce_ops import UNTOLD
from frtop_probe.ring import layout
from frtop_probe.ring.layout import StatusCell
from frtop_probe.ring.reader import Ring
from recorder.rank_runner import kinds, ops, run, signature

pytestmark = pytest.mark.torch

VARYING = """
    import random, sys
    import torch, torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world, rank = 64, int(sys.argv[1])
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    table = random.Random(1)
    for n in range(int(sys.argv[2])):
        splits, sums = ([table.randrange(9) for _ in range(world)] for _ in range(2))
        source = torch.empty(sum(splits), n % 11 + 1, dtype=torch.bfloat16)
        target = torch.empty(sum(sums), n % 11 + 1, dtype=torch.bfloat16)
        dist.all_to_all_single(target, source, sums, splits)
        dist.all_reduce(torch.empty(n % 3000 + 1), op=dist.ReduceOp.MAX)
        dist.broadcast(torch.empty(3, 5), n % world)
    dist.send(torch.empty(4), 7, tag=2**30)
    dist.all_reduce(torch.empty(1).expand(2**33))
"""


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Ring:
    folder = tmp_path_factory.mktemp("forms") / "rings"
    (ended,) = run(VARYING, folder, "3", "3000")
    assert ended.code == 0, ended.err
    return ended.ring


def test_every_op_keeps_its_kind_dtype_reduce_op_and_root(ring: Ring) -> None:
    rows = [row for row in ops(ring) if ring.forms[row.key.form]["kind"] != "send"]
    assert len(rows) > 8000
    assert 0 not in {row.key.form for row in rows}
    for row in rows:
        found = signature(ring, row)
        form = ring.forms[row.key.form]
        if found.kind == "all_reduce":
            assert row.reduce in (("other",) if UNTOLD in ring.notes.values() else ("max", "sum"))
        elif found.kind == "broadcast":
            assert found.root is not None
        assert {dtype for dtype, _ in form["inputs"]} <= {"bfloat16", "float32"}
    assert len(ring.forms) < 8
    assert ring.cell(StatusCell.SIDE_LOST) == 0
    assert ring.cell(StatusCell.SIDE_USED) < 16 * 1024


def test_the_sizes_of_the_last_ops_are_complete_and_those_of_others_unknown(ring: Ring) -> None:
    exchanges = [row for row in ops(ring) if ring.forms[row.key.form].get("splits")]
    known = [signature(ring, row).in_splits is not None for row in exchanges]
    assert all(known[-250:])
    assert not all(known)
    for row in exchanges[-250:]:
        found = signature(ring, row)
        assert found.inputs is not None
        assert found.in_splits is not None
        assert sum(found.in_splits) == found.inputs[0].shape[0]


def test_large_numbers_are_kept(ring: Ring) -> None:
    sent, reduced = (signature(ring, row) for row in ops(ring)[-2:])
    assert (sent.kind, sent.peer, sent.tag) == ("send", 7, 2**30)
    assert reduced.inputs is not None
    assert reduced.inputs[0].shape == (2**33,)


def test_sizes_that_do_not_vary_are_written_once_and_outlive_the_history(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    program = """
        import torch, torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
        tensor, lists = torch.empty(3, 4), [torch.empty(n // 4 + 1) for n in range(8)]
        for n in range(10_000):
            dist.all_reduce(tensor)
            if n % 100 == 0:
                dist.all_gather(lists, tensor.flatten()[:1])
    """
    (ended,) = run(program, tmp_path_factory.mktemp("fixed") / "rings")
    assert ended.code == 0, ended.err
    found = ops(ended.ring)
    assert len(found) == layout.FULL.slots
    assert set(kinds(ended.ring)) == {"all_reduce", "all_gather"}
    assert len({row.key for row in found}) == 2
    gather = next(row for row in found if ended.ring.forms[row.key.form]["kind"] == "all_gather")
    outputs = signature(ended.ring, gather).outputs
    assert outputs is not None
    assert [(spec.shape, spec.count) for spec in outputs] == [((1,), 4), ((2,), 4)]


def test_splits_of_all_ranks_can_be_compared(tmp_path: Path) -> None:
    program = """
        import os, random
        import torch, torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore
        rank = int(os.environ["RANK"])
        dist.init_process_group("fake", rank=rank, world_size=3, store=FakeStore())
        table = random.Random(5)
        for n in range(100):
            splits = [[table.randrange(100) for _ in range(3)] for _ in range(3)]
            sent, taken = splits[rank], [row[rank] for row in splits]
            if n >= 50 and rank == 2:
                taken[1] += 1
            dist.all_to_all_single(torch.empty(sum(taken)), torch.empty(sum(sent)), taken, sent)
    """
    world = run(program, tmp_path / "rings", ranks=3)
    assert [ended.code for ended in world] == [0, 0, 0], world[2].err
    rings = [ended.ring for ended in world]
    for number, rows in enumerate(zip(*(ops(ring) for ring in rings), strict=True)):
        sums = [
            splits_digest(signature(ring, row), rank, 3)
            for rank, (ring, row) in enumerate(zip(rings, rows, strict=True))
        ]
        assert (added(sums) == 0) is (number < 50)
