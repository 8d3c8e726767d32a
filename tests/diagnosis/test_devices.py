"""Ops on devices whose calls and completions the recorder sees."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from diagnosis.scenes import Scene, frame, only
from frtop_probe import wire
from frtop_tui.widgets.queue_pane import device_lines
from frtop_tui.widgets.spans import text_of

SYNCHRONIZE = (
    frame("/venv/lib/python3.11/site-packages/torch/cuda/__init__.py:1040", "synchronize"),
    frame("train.py:40"),
)
COMPUTING = (frame("model.py:77", "forward", source="x = self.linear(x)"),)
BACKEND = "cpu:gloo,cuda:nccl"


def on_devices(*, timeout_s: float = 1800.0) -> Scene:
    return Scene(4, backend=BACKEND, timeout_s=timeout_s)


def hand_over(
    scene: Scene, ranks: list[int], *, for_s: float = 10.0, enqueued: bool = True, number: int = 8
) -> None:
    """Issues an all_reduce on a device: its call has returned if it is `enqueued`."""
    scene.waits(ranks, "all_reduce", for_s=for_s, number=number, sync=True)
    for rank in ranks:
        actor = scene.actors[rank]
        op = actor.pending[-1] = replace(actor.pending[-1], on_device=True, enqueued=enqueued)
        progress = actor.group_progress[1]
        actor.group_progress[1] = replace(
            progress, last=op, watched=True, completed=number - 1,
            enqueued=number if enqueued else number - 1, advanced_ns=op.issued_ns,
        )  # fmt: skip
        scene.at(rank, *SYNCHRONIZE)


def test_an_op_that_no_device_completes_is_stuck_on_the_devices() -> None:
    scene = on_devices()
    hand_over(scene, [0, 1, 2, 3])
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.confidence, verdict.culprits) == ("stuck", "confirmed", ())
    assert (verdict.why.cause, verdict.why.layer) == ("device", "device")
    assert "stuck on the devices" in verdict.headline


def test_an_error_of_a_backend_is_evidence() -> None:
    scene = on_devices()
    hand_over(scene, [0, 1, 2, 3])
    actor = scene.actors[2]
    actor.groups[1] = replace(actor.groups[1], error="REMOTE_ERROR")
    verdict = only(scene.settle())
    assert "rank 2: the backend reports REMOTE_ERROR" in verdict.evidence


def test_a_call_that_does_not_return_on_one_host_is_named() -> None:
    scene = on_devices()
    hand_over(scene, [0, 2, 3])
    hand_over(scene, [1], enqueued=False)
    scene.at(1, *COMPUTING)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("stuck", (1,), "device")
    assert "rank 1 is inside the call of all_reduce #8" in verdict.headline


def test_hosts_that_make_a_communicator_are_said_to() -> None:
    scene = on_devices()
    scene.group("7", range(4), "fresh")
    for rank in range(4):
        scene.waits([rank], "all_reduce", for_s=40, group="7", number=1, usual_count=0)
        actor = scene.actors[rank]
        actor.pending[-1] = replace(actor.pending[-1], on_device=True)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, verdict.why.layer) == ("stuck", (), "network")
    assert "creating the communicator" in verdict.headline


def test_a_device_that_is_behind_is_named() -> None:
    scene = on_devices()
    hand_over(scene, [1])
    scene.does([0, 2, 3], "all_reduce", number=8, ago=10.0)
    for rank in (0, 2, 3):
        progress = scene.actors[rank].group_progress[1]
        scene.actors[rank].group_progress[1] = replace(
            progress, watched=True, enqueued=8, completed=8
        )
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("stuck", (1,))
    assert "the device of rank 1 is behind" in verdict.headline


def test_a_host_that_goes_on_is_not_blocked_by_its_device() -> None:
    scene = on_devices()
    hand_over(scene, [0, 1, 3])
    scene.group("7", [0, 2], "pair")
    scene.waits([2], "all_reduce", group="7", number=1, for_s=8.0, usual_count=50)
    scene.sleeps(0)
    found = scene.settle()
    culprits = {rank for verdict in found.verdicts for rank in verdict.culprits}
    # Rank 0 sleeps on its host, so it keeps rank 2 waiting whatever its device does.
    assert 0 in culprits
    assert found.ranks[0].state == "late"


def test_a_host_that_may_stand_behind_a_full_queue_is_not_blamed() -> None:
    scene = on_devices()
    scene.group("7", [0, 2], "pair")
    scene.does([0, 2], "all_reduce", group="7", number=1, ago=50.0)
    hand_over(scene, [0, 1, 3])
    scene.at(0, *COMPUTING, active=True)
    scene.waits([2], "all_reduce", group="7", number=2, for_s=8.0)
    verdict = only(scene.settle(8.0))
    assert (verdict.kind, verdict.confidence, verdict.culprits) == ("deadlock", "suspect", ())
    assert verdict.missing == ("the host of rank 0 may be working, not waiting for its device",)


@pytest.mark.parametrize(("enqueued", "completed", "group", "shown"), [
    (9, 9, {}, "device   default_pg  #9 done"),
    (9, 6, {}, "device   default_pg  #9 handed over, #6 done, at #7 for 10s"),
    (8, 8, {}, "device   default_pg  #8 done, #9 in its call"),
    (None, None, {"blind": "p2p"}, "device   default_pg  not seen"),
    (9, 9, {"error": "TIMEOUT"}, "device   default_pg  #9 done  error TIMEOUT"),
    (None, None, {}, ""),
])  # fmt: skip
def test_the_queue_says_how_far_a_device_is(
    enqueued: int | None, completed: int | None, group: dict[str, str], shown: str
) -> None:
    scene = on_devices()
    actor = scene.actors[0]
    actor.groups[1] = replace(actor.groups[1], **group)
    progress = wire.GroupProgress(1, 9, 0, 5)
    if enqueued is not None and completed is not None:
        progress = replace(
            progress, enqueued=enqueued, completed=completed, watched=True,
            advanced_ns=scene._ns(actor, 10.0),
        )  # fmt: skip
    actor.group_progress[1] = progress
    found = scene.settle(0.0)
    rows = [text_of(row) for row in device_lines(found.ranks[0], found.now_ns)]
    assert "\n".join(rows) == shown
