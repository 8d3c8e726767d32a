"""A capture has tensors of the ranks that wait in an op, or says why it has none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from connect.fakes import frame_of
from connect.test_capture_collector import OP, Scene, ranks, respond, scene
from frtop_probe import wire
from frtop_probe.features.tensors.messages import SummarizeTensors
from frtop_tui.job.model import HostView

__all__ = ["scene"]


def test_a_read_only_key_gets_no_tensors_and_the_capture_says_so(scene: Scene) -> None:
    views = ranks(["a", "b"], 1, pending=(OP,))
    hosts = (HostView("a", "reporting", may_act=False), HostView("b", "reporting"))
    frame = frame_of(*views, hosts=hosts)
    scene.run(scene.begin(frame), frame)
    ((_, _, missing),) = scene.written
    assert list(missing) == ["no tensors of rank 0: our key may only read on a"]
    assert scene.kinds.count("SummarizeTensors") == 1


@pytest.mark.parametrize("automatic", [True, False])
def test_devices_are_read_for_a_person_only(scene: Scene, automatic: bool) -> None:
    frame = frame_of(*ranks(["a"], 2, pending=(OP,)))
    scene.run(scene.begin(frame, automatic=automatic), frame)
    assert scene.devices == {not automatic}


def test_read_only_asks_nothing_of_the_ranks(scene: Scene) -> None:
    frame = frame_of(*ranks(["a"], 2, pending=(OP,)), read_only="started with --read-only")
    scene.run(scene.begin(frame), frame)
    assert "SummarizeTensors" not in scene.kinds
    ((_, _, missing),) = scene.written
    assert list(missing) == ["no tensors of ranks 0-1: started with --read-only"]


@pytest.mark.parametrize("state", ["silent", "stopped"])
def test_ranks_that_cannot_respond_are_not_asked(scene: Scene, state: str) -> None:
    frame = frame_of(*ranks(["a"], 2, pending=(OP,), state=state))
    scene.run(scene.begin(frame), frame)
    assert "SummarizeTensors" not in scene.kinds
    ((_, _, missing),) = scene.written
    assert list(missing) == [f"no tensors of ranks 0-1: {state}, cannot respond"]


@pytest.mark.parametrize(("error", "help_", "why"), [
    ("none", "waits in no op that has tensors", "no pending op has tensors"),
    ("missing", "", "the recorder does not respond"),
    ("failed", "out of memory", "out of memory"),
])  # fmt: skip
def test_missing_tensors_have_a_reason(scene: Scene, error: str, help_: str, why: str) -> None:
    def cannot(host: str, request: wire.Request) -> wire.Response | None:
        if isinstance(request, SummarizeTensors):
            return wire.TensorsResponse(request.id, host, request.key, 1, (), error, help_)
        return respond(host, request)

    frame = frame_of(*ranks(["a"], 2, pending=(OP,)))
    scene.run(scene.begin(frame), frame, agent=cannot)
    ((_, _, missing),) = scene.written
    (text,) = missing
    assert text.startswith(f"no tensors of ranks 0-1: {why}")


def test_ranks_without_a_recorder_are_asked_for_torchs_history_only(scene: Scene) -> None:
    """What is missing is said once for all of them, not once for each process."""
    prepared, *rest = ranks(["a"], 3, pending=(OP,))
    outside = [replace(one, identity=replace(one.identity, prepared=False)) for one in rest]
    frame = frame_of(prepared, *outside)
    one = scene.begin(frame)
    scene.run(one, frame)
    assert one.writing.state == "written"
    ((_, histories, missing),) = scene.written
    assert histories == [0, 1, 2]
    assert list(missing) == [
        "no tensors of ranks 1-2: they have no recorder, and are seen from outside"
    ]
    assert scene.kinds.count("HistoryRequest") == 3
    assert scene.kinds.count("SummarizeTensors") == 1
    assert "SnapshotRequest" in scene.kinds
