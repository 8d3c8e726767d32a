"""One job under watch, and what its successor makes of its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import Problem, Writing
from frtop_tui.job.naming import job_key
from frtop_tui.sources.base import ScriptedSource
from frtop_tui.watch.deliveries import Deliveries
from frtop_tui.watch.episodes import Report
from frtop_tui.watch.history import FILE, CulpritHistory
from frtop_tui.watch.job_file import JobFile
from frtop_tui.watch.job_watch import JobWatch, Plan
from screens import scenes
from waiting import wait_for


class Watched:
    """A job of scripted frames under a watch with a real command and a real state."""

    def __init__(self, folder: Path, *, dry_run: bool = False, state: Path | None = None) -> None:
        self.told = folder / "told"
        self.source = ScriptedSource([scenes.healthy()])
        self.deliveries = Deliveries(
            ["sh", "-c", f"cat >> {self.told}"], None, deadline_s=10, dry_run=dry_run
        )
        self.file = JobFile(state or folder, job_key(scenes.JOB))
        self.said: list[dict[str, Any]] = []
        plan = Plan(3600, 30, folder, dry_run=dry_run)
        self.watch = JobWatch(
            self.source,
            self.file,
            plan,
            self.deliveries,
            history=CulpritHistory(folder / FILE),
            say=self.said.append,
        )

    def give(self, frame: Frame) -> None:
        self.source.give(frame)
        self.watch.step()

    def finish_capture(self, **fields: Any) -> None:
        self.give(scenes.hung())
        writing = Writing("capture", "written", str(self.source.captured[-1][0]), at_ns=2**62)
        self.give(replace(scenes.hung(), writings=(replace(writing, **fields),)))

    def events(self) -> list[str]:
        return [one["event"] for one in self.said]


def test_a_confirmed_verdict_is_captured_and_then_told(tmp_path: Path) -> None:
    one = Watched(tmp_path)
    one.give(scenes.hung())
    assert one.events() == ["watching", "confirmed"]
    assert one.said[1]["verdict"]["culprits"] == list(scenes.hung().verdicts[0].culprits)
    ((path, automatic),) = one.source.captured
    assert automatic
    assert path.parent == tmp_path
    assert not one.deliveries.under_way  # stacks vanish: the capture comes first
    one.finish_capture(size=17)
    assert one.said[-1]["event"] == "captured"
    assert (one.said[-1]["ok"], one.said[-1]["size"]) == (True, 17)
    assert wait_for(one.deliveries.results, "the command ends")[0]["ok"]
    assert f'"capture": "{path}"' in one.told.read_text()
    one.give(scenes.hung())
    assert not one.deliveries.under_way


def test_a_capture_that_fails_keeps_nobody_from_being_told(tmp_path: Path) -> None:
    one = Watched(tmp_path)
    one.give(scenes.hung())
    one.finish_capture(state="failed", problem=Problem("No space left on device", "make room"))
    assert one.said[-1]["ok"] is False
    assert "No space left" in one.said[-1]["problem"]
    assert wait_for(one.deliveries.results, "the command ends")[0]["ok"]
    assert '"capture": ""' in one.told.read_text()


def test_a_successor_repeats_nothing_and_takes_up_what_was_not_told(tmp_path: Path) -> None:
    one = Watched(tmp_path)
    one.give(scenes.hung())  # killed while the capture was under way
    two = Watched(tmp_path)
    two.give(scenes.hung())
    assert two.events() == ["watching"]
    two.finish_capture()
    assert wait_for(two.deliveries.results, "the command ends")[0]["ok"]
    three = Watched(tmp_path)
    three.give(scenes.hung())
    three.give(scenes.hung())
    assert three.events() == ["watching"]
    assert three.source.captured == []


def test_a_state_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    one = Watched(tmp_path, state=tmp_path / "gone")
    one.give(scenes.hung())
    one.finish_capture()
    assert one.events().count("trouble") == 1
    assert wait_for(one.deliveries.results, "told all the same")[0]["ok"]


def test_a_dry_run_does_and_notes_nothing(tmp_path: Path) -> None:
    one = Watched(tmp_path, dry_run=True)
    one.give(scenes.hung())
    assert one.events() == ["watching", "confirmed", "captured", "command"]
    assert one.said[-1]["dry_run"]
    assert one.said[-2]["dry_run"]
    assert one.source.captured == []
    assert not list(tmp_path.iterdir())


def test_two_watchers_share_a_job_out(tmp_path: Path) -> None:
    one, two = (JobFile(tmp_path, job_key(scenes.JOB)) for _ in range(2))
    assert one.claim()
    assert not two.claim()
    one.release()
    assert two.claim()
    two.release()
    assert list(tmp_path.iterdir())  # the lock itself stays: others may wait on it


def test_what_was_said_before_the_nonce_was_known_is_not_forgotten(tmp_path: Path) -> None:
    key = (*job_key(scenes.JOB)[:-1], "")
    JobFile(tmp_path, key).save({"stuck/gil": Report("delivered", 1.0)})
    assert "stuck/gil" in JobFile(tmp_path, (*key[:-1], "abcd")).load()


def test_a_damaged_state_says_nothing(tmp_path: Path) -> None:
    file = JobFile(tmp_path, job_key(scenes.JOB))
    file.save({})
    (path,) = tmp_path.glob("*.json")
    path.write_bytes(b'{"x": 1')
    assert file.load() == {}
