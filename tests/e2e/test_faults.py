"""For each fault of the demo, a real job gets the right rank, cause and state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from frtop_tui.connect.live import LiveSource
from frtop_tui.demo.faults import CULPRIT, FAULTS
from frtop_tui.demo.job import DemoJob
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import RankState
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.json_document import document
from waiting import wait_for

pytestmark = pytest.mark.long  # others of their kind run always, in test_commands and the zoo
POSTURES: dict[str, RankState] = {
    "stall": "late",
    "exit": "done",
    "exception": "dead",
    "kill": "dead",
    "gil": "silent",
    "stop": "stopped",
    "sleep": "late",
    "file": "late",
    "compute": "late",
}
HELD_UP = {"compute"}


def watch(source: LiveSource, job: DemoJob, seconds: float) -> Frame:
    """Returns the first frame whose first verdict is confirmed and blames a rank.

    A mismatch of which only two of four ranks have arrived is confirmed, but either may be right.
    """

    def confirmed() -> Frame | None:
        frame = source.frame()
        first = frame.verdicts[0] if frame.verdicts else None
        blames = first is not None and first.confidence == "confirmed" and first.culprits
        return frame if blames else None

    def failure() -> str:
        frame = source.frame()
        return (
            f"a confirmed verdict: {frame.health} {frame.verdicts}\n"
            f"{[(rank, view.state) for rank, view in frame.ranks.items()]}\n"
            f"{job.output()[-3000:]}"
        )

    return wait_for(confirmed, failure, seconds, pause_s=0.1)


@pytest.mark.parametrize("name", [name for name in FAULTS if name != "none"])
def test_the_culprit_and_the_cause_are_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with demo(name, monkeypatch) as job:
        source = LiveSource()
        try:
            frame = watch(source, job, 90)
        finally:
            source.close()
        view = frame.ranks[CULPRIT]
        seen = f"{frame.verdicts}\n{view.prior_snapshot}\n{view.snapshot}"
        assert job.fault.explained_by(frame.verdicts), seen
        if name in POSTURES:
            assert view.state == POSTURES[name]
        assert exit_status(frame) == (5 if name in HELD_UP else 3)


def test_a_healthy_run_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    with demo("none", monkeypatch) as job:
        source = LiveSource()
        frames: list[Frame] = []

        def is_trained() -> bool:
            frames.append(source.frame())
            assert not frames[-1].verdicts, document(frames[-1])
            return job.step() >= 200

        try:
            wait_for(is_trained, job.output, 90, pause_s=0.1)
        finally:
            source.close()
        frame = frames[-1]
        assert frame.health == "healthy"
        assert exit_status(frame) == 0
        assert {"hung", "dead", "mismatch", "held up"}.isdisjoint(frame.health for frame in frames)
        assert all(
            (view.status is not None and view.status.step > 0) for view in frame.ranks.values()
        )


@contextmanager
def demo(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[DemoJob]:
    """Starts the demo. After it there is neither file nor process of it, nor a zombie."""
    children = {*psutil.Process().children()}
    with DemoJob(FAULTS[name]) as job:
        for variable, value in job.environment().items():
            monkeypatch.setenv(variable, value)
        job.start()
        yield job
    assert not job.folder.exists()
    assert not job.rings.exists()
    assert not [p for p in Path("/proc").glob("[0-9]*") if _lives_in(p, job.rings)]
    left = {*psutil.Process().children()} - children
    assert not [one for one in left if one.status() == psutil.STATUS_ZOMBIE]


def _lives_in(process: Path, folder: Path) -> bool:
    try:
        environ = (process / "environ").read_bytes()
    except OSError:
        return False
    return f"FRTOP_DIR={folder}".encode() in environ and int(process.name) != os.getpid()
