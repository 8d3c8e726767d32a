"""The hook records every c10d op once, with its signature, number and completion."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe.agent.checksum_blocks import BlockReader
from frtop_probe.agent.ring_view import RingView
from frtop_probe.recorder.ops.reduce_ops import UNTOLD
from frtop_probe.ring.layout import Flag, State, StatusCell
from frtop_probe.ring.reader import EventRow, Ring
from frtop_probe.wire import Signature, TensorSpec
from recorder.rank_runner import FinishedRank, kinds, ops, run, signature
from recorder.rank_runner import kind as kind_of

pytestmark = pytest.mark.torch

PROGRAM = """
    import time, weakref
    import torch, torch.distributed as dist

    dist.init_process_group("gloo")
    rank, peer = dist.get_rank(), 1 - dist.get_rank()
    t = lambda *shape: torch.ones(*shape)
    dist.all_reduce(t(4))
    dist.all_reduce(t(4), op=dist.ReduceOp.MAX)
    dist.all_reduce_coalesced([t(2), t(3)])
    dist.reduce(t(4), 1, op=dist.ReduceOp.PRODUCT)
    dist.broadcast(t(2, 3), 1)
    dist.all_gather([t(4), t(4)], t(4))
    dist.all_gather_into_tensor(t(8), t(4))
    dist.gather(t(4), [t(4), t(4)] if rank == 0 else None, dst=0)
    dist.scatter(t(4), [t(4), t(4)] if rank == 1 else None, src=1)
    dist.reduce_scatter_tensor(t(4), t(8))
    dist.all_to_all_single(t(4), t(4))
    dist.all_to_all_single(t(4), t(4), [1, 3] if rank else [3, 1], [3, 1] if rank == 0 else [1, 3])
    dist.barrier()
    if rank == 0:
        time.sleep(1.2)
    from frtop_probe.recorder.process.lifecycle import lifecycle
    from frtop_probe.ring.layout import StatusCell
    beats = lifecycle.recorder.ring.cells[StatusCell.HEARTBEATS]
    dist.monitored_barrier()
    print("beats", lifecycle.recorder.ring.cells[StatusCell.HEARTBEATS] - beats)
    if rank == 0:
        dist.send(t(4), 1, tag=3)
        dist.recv(t(4), None)
        dist.isend(t(4), 1).wait()
    else:
        dist.recv(t(4), 0, tag=3)
        dist.send(t(4), 0)
        dist.irecv(t(4), 0).wait()
    for request in dist.batch_isend_irecv([
        dist.P2POp(dist.isend, t(5), peer), dist.P2POp(dist.irecv, t(5), peer)]):
        request.wait()
    dist.all_gather_object([None, None], {"a": rank})
    with torch.inference_mode():
        dist.all_reduce(t(6))
    small = dist.new_group([1])
    if rank == 1:
        dist.all_reduce(t(4), group=small)
        dist.broadcast(t(4), 1, group=small)

    # The next op, or soon the thread, drops the tensors of a finished op.
    def finish_an_op():
        big = torch.ones(1000, 1000)
        dist.all_reduce(big)
        return weakref.ref(big)
    references = [finish_an_op() for _ in range(5)]
    deadline = time.monotonic() + 5
    while any(ref() is not None for ref in references) and time.monotonic() < deadline:
        time.sleep(0.01)
    print("alive", sum(ref() is not None for ref in references))

    # On gloo these handles never report completion; they must not accumulate.
    for _ in range(20):
        dist.reduce_scatter_tensor(t(4), t(8), async_op=True).wait()
    dist.barrier()
    pending = lifecycle.recorder.pending
    print("unsignalled", len(pending.to_weaken) + len(pending._weak))

    forever = dist.irecv(t(7), peer, tag=77)   # pending, and its handle is alive
    def drop_a_handle():
        tensor = torch.ones(9)
        dist.irecv(tensor, peer, tag=78)
        return weakref.ref(tensor)
    buffer = drop_a_handle()
    deadline = time.monotonic() + 5
    while buffer() is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    print("buffer_alive", buffer() is not None)
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait(["done"])  # otherwise rank 1 may still be in the barrier
    else:
        store.set("done", "")
    import os
    os._exit(0)  # with the receive still pending, as a killed rank would leave it
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[FinishedRank]:
    return run(PROGRAM, tmp_path_factory.mktemp("ops") / "rings", ranks=2)


@pytest.fixture(scope="module")
def rings(world: list[FinishedRank]) -> list[Ring]:
    assert [ended.code for ended in world] == [0, 0], world[0].err + world[1].err
    return [ended.ring for ended in world]


def _of_kind(ring: Ring, kind: str) -> list[EventRow]:
    return [row for row in ops(ring) if kind_of(ring, row) == kind]


def test_each_call_is_recorded_once_and_in_order(rings: list[Ring]) -> None:
    first = [
        "all_reduce", "all_reduce", "all_reduce_coalesced", "reduce", "broadcast",
        "all_gather", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter_tensor",
        "all_to_all_single", "all_to_all_single", "barrier", "monitored_barrier",
    ]  # fmt: skip
    for ring in rings:
        assert kinds(ring)[: len(first)] == first
    assert kinds(rings[0])[14:17] == ["send", "recv_any_source", "send"]
    assert sorted(kinds(rings[0])[17:19]) == ["recv", "send"]


def test_numbers_count_collectives_and_p2p_ops_apart_from_the_groups_creation(
    rings: list[Ring],
) -> None:
    for ring in rings:
        world = next(i for i, text in ring.groups.items() if text["description"] == "default_pg")
        assert ring.groups[world]["exact"] is True
        assert ring.groups[world]["ranks"] == "0-1"
        rows = [row for row in ops(ring) if row.group == world]
        collectives = [row.number for row in rows if not row.flags & Flag.P2P]
        p2p = [row.number for row in rows if row.flags & Flag.P2P]
        assert collectives == list(range(1, len(collectives) + 1))
        assert p2p == list(range(1, len(p2p) + 1))
        group_row = next(row for row in ring.group_rows() if row.group == world)
        assert (group_row.number, group_row.p2p) == (len(collectives), len(p2p))


def test_messages_are_counted_by_direction_peer_and_tag(rings: list[Ring]) -> None:
    for rank, ring in enumerate(rings):
        reader = BlockReader(RingView(ring))
        reader.fresh(2**62)
        found = reader.messages()
        assert found is not None
        world = next(i for i, text in ring.groups.items() if text["description"] == "default_pg")
        mine = next(one for one in found if one.group == world)
        counts = {(one.send, one.peer, one.tag): one.number for one in mine.counts}
        peer = 1 - rank
        expected: dict[tuple[bool, int | None, int], int] = {
            (True, peer, 0): 2,
            (False, peer, 0): 1,
        }
        if rank == 0:
            expected |= {(True, peer, 3): 1, (False, None, 0): 1}
        else:
            expected |= {(False, peer, 3): 1, (False, peer, 0): 2}
        assert counts == {**expected, (False, peer, 77): 1, (False, peer, 78): 1}
        assert mine.complete
        (pending,) = [row for row in ring.pending() if row.flags & Flag.P2P]
        assert pending.message == 1
        assert all(row.message == 0 for row in ops(ring) if not row.flags & Flag.P2P)


def test_a_signature_has_tensors_roots_peers_and_splits(rings: list[Ring]) -> None:
    zero, one = rings
    spec = (TensorSpec("float32", (4,), 1, "cpu"),)

    def first(ring: Ring, kind: str) -> Signature:
        return signature(ring, _of_kind(ring, kind)[0])

    total = _reduce_op(zero, "sum")
    assert first(zero, "all_reduce") == Signature("all_reduce", total, inputs=spec)
    assert first(zero, "all_gather").outputs == (TensorSpec("float32", (4,), 2, "cpu"),)
    assert first(zero, "reduce").root == 1
    assert first(zero, "send") == Signature("send", inputs=spec, peer=1, tag=3)
    assert first(one, "recv") == Signature("recv", outputs=spec, peer=0, tag=3)
    assert first(zero, "barrier") == Signature("barrier")
    assert first(zero, "gather").outputs is not None
    assert first(one, "gather").outputs is None
    even, uneven = (signature(zero, row) for row in _of_kind(zero, "all_to_all_single"))
    assert (even.in_splits, even.out_splits) == ((2, 2), (2, 2))
    assert (uneven.in_splits, uneven.out_splits) == ((3, 1), (3, 1))


def test_reduce_ops_are_decoded_later(rings: list[Ring]) -> None:
    rows = _of_kind(rings[0], "all_reduce")
    ring = rings[0]
    assert [row.reduce for row in rows[:2]] == [_reduce_op(ring, "sum"), _reduce_op(ring, "max")]
    assert _of_kind(ring, "reduce")[0].reduce == _reduce_op(ring, "product")
    assert _of_kind(ring, "broadcast")[0].reduce is None


def _reduce_op(ring: Ring, name: str) -> str:
    return "other" if UNTOLD in ring.notes.values() else name


def test_a_torch_that_does_not_say_which_reduce_op_it_is(tmp_path: Path) -> None:
    program = """
        import torch, torch.distributed as dist
        from frtop_probe.recorder.process.lifecycle import lifecycle
        from frtop_probe.ring.layout import StatusCell
        dist.init_process_group("gloo")
        later = lifecycle.recorder.reduce_ops.raw
        for _ in range(2):
            dist.all_reduce(torch.ones(3))
            while later: pass
        later.append((lifecycle.recorder.ring.cells[StatusCell.HEAD], object()))
        while later: pass
        dist.barrier()
        dist.destroy_process_group()
    """
    (ended,) = run(program, tmp_path / "rings")
    assert ended.code == 0, ended.err
    assert "frtop" not in ended.err
    assert list(ended.ring.notes.values()) == [UNTOLD]
    assert _of_kind(ended.ring, "all_reduce")[1].reduce == "other"
    assert _of_kind(ended.ring, "barrier")


def test_all_ops_complete_except_a_receive_without_a_send(rings: list[Ring]) -> None:
    for ring in rings:
        (pending,) = [row for row in ring.pending() if row.flags & Flag.P2P]
        assert signature(ring, pending).tag == 77
        dropped = next(row for row in ops(ring) if signature(ring, row).tag == 78)
        assert Flag.UNTRACKED in dropped.flags
        for row in ops(ring)[:-3]:
            assert row.done_ns >= row.issued_ns, signature(ring, row)


def test_ops_whose_caller_waits_are_marked(rings: list[Ring]) -> None:
    zero = rings[0]
    assert Flag.SYNC in _of_kind(zero, "all_reduce")[0].flags
    assert Flag.SYNC in _of_kind(zero, "monitored_barrier")[0].flags
    sends = _of_kind(zero, "send")
    assert [Flag.SYNC in row.flags for row in sends] == [True, False, False]


def test_the_call_site_is_the_users_line(rings: list[Ring]) -> None:
    for row in ops(rings[0]):
        assert rings[0].sites[row.site][0].endswith("train.py")
    count, smooth_ns = rings[0].typical_wait_ns(ops(rings[0])[0].site)
    assert count == 1
    assert smooth_ns > 0


def test_no_tensor_is_kept_alive_and_heartbeats_go_on(
    world: list[FinishedRank], rings: list[Ring]
) -> None:
    for ended in world:
        printed = dict(line.split() for line in ended.out.splitlines())
        counts = (printed["alive"], printed["unsignalled"], printed["buffer_alive"])
        assert counts == ("0", "0", "False")
    assert int(dict(line.split() for line in world[1].out.splitlines())["beats"]) >= 2
    for ring in rings:
        assert ring.cell(StatusCell.HOOK_ERRORS) == 0
        assert ring.cell(StatusCell.STATE) == State.ON  # os._exit skips the recorder's stop


def test_both_ranks_record_their_identity(rings: list[Ring]) -> None:
    jobs = [ring.rank_identity["job"] for ring in rings]
    assert [ring.cell(StatusCell.RANK) for ring in rings] == [0, 1]
    assert jobs[0] == jobs[1]
    assert jobs[0]["nonce"]
    assert (jobs[0]["name"], jobs[0]["world_size"]) == ("train.py", 2)
