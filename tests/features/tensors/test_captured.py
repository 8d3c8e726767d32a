"""A capture has tensors of the ranks that wait in an op, or says why it has none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from connect.fakes import frame_of
from connect.test_capture_collector import OP, Scene, ranks, respond, scene
from frtop_probe import wire
from frtop_probe.features.tensors.messages import SummarizeTensors
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import HostView

__all__ = ["scene"]


@pytest.mark.parametrize("automatic", [True, False])
def test_devices_are_read_for_a_person_only(scene: Scene, automatic: bool) -> None:
    frame = frame_of(*ranks(["a"], 2, pending=(OP,)))
    scene.run(scene.begin(frame, automatic=automatic), frame)
    assert scene.devices == {not automatic}


HOSTS = (HostView("a", "reporting", may_act=False), HostView("b", "reporting"))


@pytest.mark.parametrize(("frame", "asked", "why"), [
    (frame_of(*ranks(["a", "b"], 1, pending=(OP,)), hosts=HOSTS), 1,
     "no tensors of rank 0: our key may only read on a"),
    (frame_of(*ranks(["a"], 2, pending=(OP,)), read_only="started with --read-only"), 0,
     "no tensors of ranks 0-1: started with --read-only"),
    (frame_of(*ranks(["a"], 2, pending=(OP,), state="silent")), 0,
     "no tensors of ranks 0-1: silent, cannot respond"),
    (frame_of(*ranks(["a"], 2, pending=(OP,), state="stopped")), 0,
     "no tensors of ranks 0-1: stopped, cannot respond"),
])  # fmt: skip
def test_who_cannot_answer_is_not_asked_and_the_capture_says_why(
    scene: Scene, frame: Frame, asked: int, why: str
) -> None:
    scene.run(scene.begin(frame), frame)
    ((_, _, missing),) = scene.written
    assert list(missing) == [why]
    assert scene.kinds.count("SummarizeTensors") == asked


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
