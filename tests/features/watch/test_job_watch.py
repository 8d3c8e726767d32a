"""One job under watch, and what its successor makes of its state."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.watch import lines
from frtop_tui.features.watch.capture_folder import CaptureFolder
from frtop_tui.features.watch.deliveries import Deliveries
from frtop_tui.features.watch.episodes import Report
from frtop_tui.features.watch.history import FILE, CulpritHistory
from frtop_tui.features.watch.job_file import JobFile, remove_old
from frtop_tui.features.watch.job_watch import JobWatch, Plan
from frtop_tui.job.model import Problem, Writing
from frtop_tui.job.naming import job_key
from screens import scenes
from waiting import wait_for


class Watched:
    """A job of scripted frames under a watch with a real command and a real state."""

    def __init__(
        self, folder: Path, *, dry_run: bool = False, state: Path | None = None, most: int = 100
    ) -> None:
        self.told = folder / "told"
        self.source = ScriptedSource([scenes.healthy()])
        self.deliveries = Deliveries(
            ["sh", "-c", f"cat >> {self.told}"], None, deadline_s=10, dry_run=dry_run
        )
        self.file = JobFile(state or folder, job_key(scenes.JOB))
        self.said: list[dict[str, Any]] = []
        captures = CaptureFolder(folder, state or folder, most=most, most_bytes=1 << 30)
        plan = Plan(3600, 30, captures, dry_run=dry_run)
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


def test_what_is_known_from_elsewhere_is_told_as_it_is_after_the_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"output": ["job.out: OOM"], "before": ["node4 was a culprit before"]}
    monkeypatch.setattr(lines, "notes_on", lambda _: known)
    one = Watched(tmp_path)
    one.give(scenes.hung())
    assert one.said[1]["beside"] == ["job.out: OOM"]
    known["output"] = ["job.out: KeyError\x1b[31m", "job.out: OOM"]
    one.finish_capture()
    assert wait_for(one.deliveries.results, "the command ends")[0]["ok"]
    told = json.loads(one.told.read_text())
    assert told["beside"] == ["job.out: KeyError\N{REPLACEMENT CHARACTER}[31m", "job.out: OOM"]


def test_a_job_that_has_ended_is_through_once_all_is_told(tmp_path: Path) -> None:
    one = Watched(tmp_path)
    one.give(replace(scenes.healthy(), health="ended"))
    assert one.watch.is_through
    one.give(scenes.healthy())
    assert not one.watch.is_through
    one.give(scenes.hung())
    assert not one.watch.is_through
    one.finish_capture()
    assert one.watch.is_through  # a process that ended is no argument against the verdict
    assert wait_for(one.deliveries.results, "the command ends")[0]["ok"]
    suspect = tuple(replace(v, confidence="suspect", kind="dead") for v in scenes.hung().verdicts)
    one.give(replace(scenes.hung(), verdicts=suspect, health="dead"))
    assert not one.watch.is_through


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
    assert not list(tmp_path.iterdir())  # of a job without a report


def test_a_lock_that_was_removed_while_somebody_waited_for_it_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = (JobFile(tmp_path, job_key(scenes.JOB)) for _ in range(3))
    assert one.claim()
    lock = fcntl.flock

    def meanwhile(*words: Any) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        one.release()
        assert three.claim()
        lock(*words)

    monkeypatch.setattr(fcntl, "flock", meanwhile)
    assert not two.claim()
    three.save({"stuck/gil": Report("delivered", 1.0)})
    three.release()
    assert two.claim()
    two.release()
    assert len(list(tmp_path.iterdir())) == 2  # with a report the lock stays


def test_old_captures_give_way_but_not_those_of_what_lasts(tmp_path: Path) -> None:
    one = Watched(tmp_path, most=2)
    paths = [old_capture(tmp_path, hour) for hour in range(4)]
    one.give(scenes.hung())
    own = one.source.captured[-1][0]
    own.write_bytes(b"newest")
    one.finish_capture()
    assert one.said[-1] == {"event": "removed", "what": [str(path) for path in paths[:3]]}
    assert paths[3].exists()
    assert own.exists()


def old_capture(folder: Path, hour: int, size: int = 100) -> Path:
    path = folder / f"frtop-train.py-20200101-{hour:02}0000.cap"
    path.write_bytes(b"x" * size)
    os.utime(path, (1_577_836_800 + 3600 * hour,) * 2)
    return path


def test_the_folder_is_bounded_in_bytes_and_only_names_of_ours_are_removed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    for name in ("frtop-train.py-0312.cap", "other.cap", "frtop-x-20200101-000000.html"):
        (tmp_path / name).write_bytes(b"y" * 5000)
    paths = [old_capture(tmp_path, hour) for hour in range(6)]
    draft = tmp_path / f".{paths[0].name}.0123abcd"
    draft.write_bytes(b"half")
    os.utime(draft, (1, 1))
    lasting = JobFile(state, job_key(scenes.JOB))
    lasting.save({
        "stuck/gil": Report("delivered", 1.0, capture=str(paths[0])),
        "dead/oom": Report("delivered", 1.0, capture=str(paths[1]), over=True),
    })  # fmt: skip
    folder = CaptureFolder(tmp_path, state, most=100, most_bytes=250)
    found = folder.make_room([str(paths[2])])
    assert found.paths == (str(paths[1]), *map(str, paths[3:]))
    assert not found.problem
    assert [path.exists() for path in paths] == [True, False, True, False, False, False]
    assert not draft.exists()
    assert len(list(tmp_path.glob("*.cap"))) == 4
    assert folder.make_room() == ((), "")
    # Nobody watches that job any more.
    os.utime(next(state.glob("*.json")), (1, 1))
    small = CaptureFolder(tmp_path, state, most=1, most_bytes=250)
    assert small.make_room().paths == (str(paths[0]),)
    # Another watcher does.
    assert lasting.claim()
    (tmp_path / paths[0].name).write_bytes(b"z")
    os.utime(paths[0], (1, 1))
    assert small.make_room().paths == (str(paths[2]),)
    lasting.release()


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    folder = CaptureFolder(tmp_path / "gone", tmp_path, most=1, most_bytes=1)
    assert "No such file" in folder.make_room().problem


def test_sweeping_leaves_what_is_in_use(tmp_path: Path) -> None:
    held, left = (JobFile(tmp_path, (*job_key(scenes.JOB)[:-1], name)) for name in "ab")
    assert held.claim()
    assert left.claim()
    left.save({"stuck/gil": Report("delivered", 1.0)})
    left.release()
    (tmp_path / ".job-x.json.0123abcd").write_bytes(b"half")
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    remove_old(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    held.release()


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
