"""Ten minutes of gauges in captures and black boxes, with the names that they have replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from diagnosis.scenes import Scene
from files.boxes import BoxRecorder
from frtop_probe import archive, wire
from frtop_tui.diagnosis.evidence.host_facts import facts_of
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.files.loader import open_paths
from frtop_tui.files.redaction import redacted
from screens.gauge_scenes import DISK, braked, history_of, measured, subject


def of(frame: Frame, name: str) -> list[str]:
    host = next(host for host in frame.hosts if host.name == name)
    return [fact.kind for fact in facts_of(host.gauges)]


def test_a_capture_has_the_history_of_each_host(tmp_path: Path) -> None:
    frame = measured(3)
    capture.write(tmp_path / "x.cap", frame, {}, ())
    found = open_paths([tmp_path / "x.cap"])
    assert [host.gauges for host in found.hosts] == [host.gauges for host in frame.hosts]
    assert of(found, "node3") == ["gpu slow"]
    assert found.hosts[3].gauges is not None
    assert found.hosts[3].gauges.points == 60


def test_a_redacted_capture_does_not_say_where_file_systems_lie() -> None:
    disks = [
        subject("disk", "/acme/moonshot", DISK, detail="nfs4 filer.acme.example:/vol/moonshot"),
        subject("cgroup", "/user.slice/alice/job7", {"cpu": 5}),
        subject("infiniband", "mlx5_0:1", {"state": 4}),
        subject("nic", "eth0", {"sent": 4}),
        subject("gpu", "0", {"use": 4}, detail="NVIDIA H200"),
    ]
    frame = measured(3, readings=lambda _: disks)
    found = redacted(frame).hosts[3].gauges
    assert found is not None
    text = repr([(one.name, one.detail) for one in found.subjects])
    for secret in ("acme", "moonshot", "filer", "alice"):
        assert secret not in text
    for kept in ("mlx5_0:1", "eth0", "NVIDIA H200", "nfs4"):
        assert kept in text
    assert found.host == frame.hosts[3].gauges.host  # type: ignore[union-attr]


@pytest.mark.parametrize("with_state", [True, False])
def test_a_black_box_has_them_too(tmp_path: Path, with_state: bool) -> None:
    table = history_of(braked)
    (box,) = BoxRecorder(Scene(4)).boxes()
    after = structs.replace(box.after, gauges=table.full()) if with_state else box.after
    box = structs.replace(box, after=after, gauges=table.history())
    archive.write(tmp_path / "x.box", "blackbox", wire.encode(box))
    (host,) = open_paths([tmp_path / "x.box"]).hosts
    assert host.gauges is not None
    assert host.gauges.points == 60
    assert {one.kind for one in host.gauges.subjects} >= {"host", "gpu", "rank"}
    if with_state:
        assert [fact.kind for fact in facts_of(host.gauges)] == ["gpu slow"]
