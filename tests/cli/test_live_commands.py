"""`frtop capture` on a scripted source that answers like a live one."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from diagnosis.scenes import frame as frame_of
from diagnosis.scenes import three_wait
from frtop_probe import wire
from frtop_probe.unprepared.discovery.facts import SCAN_FAILED
from frtop_probe.unprepared.worker import SCAN_TOOK_TOO_LONG
from frtop_tui.cli import capture as capture_command
from frtop_tui.cli import live as live_command
from frtop_tui.connect import followers
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis import confirmation
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, NoAgent, NoJob, Unreachable, UsageError
from frtop_tui.files import capture
from frtop_tui.files.output_path import default_path, unused_path
from frtop_tui.job.model import Coverage, CoverageNote, HostView, Problem, Writing
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import byte_size
from screens.scenes import WALL, connecting, healthy, hung, no_agent


class Answering(ScriptedSource):
    """Answers every request in the next frame."""

    def __init__(self, frame: Frame, *, problem: Problem | None = None) -> None:
        super().__init__([frame])
        self._problem = problem

    def capture(
        self, path: Path, *, automatic: bool = False, settle_s: float = 0.0, redact: bool = False
    ) -> None:
        super().capture(path, automatic=automatic, settle_s=settle_s, redact=redact)
        if self._problem:
            return self._tell(Writing("capture", "failed", str(path), problem=self._problem))
        size = capture.write(path, self.frame(), {}, ())
        return self._tell(
            Writing("capture", "written", str(path), 63, 64, size, Problem("rank 5 did not answer"))
        )

    def _tell(self, writing: Writing) -> None:
        self.give(replace(self.frame(), writings=(writing,)))


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Callable[[Source], None]:
    def give(source: Source) -> None:
        monkeypatch.setattr("frtop_tui.cli.live.connect", lambda options: source)

    return give


def options(**fields: object) -> argparse.Namespace:
    known: dict[str, object] = {"output": None, "json": False, "redact": False}
    return argparse.Namespace(**{**known, **fields})


def test_capture_prints_path_gaps_and_verdict(
    live: Callable[[Source], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Answering(hung())
    live(source)
    path = tmp_path / "x.cap"
    assert capture_command.run(options(output=str(path))) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{path}  {byte_size(path.stat().st_size)}"
    assert said[1] == "missing: rank 5 did not answer"
    assert said[2].startswith("rank 37 (node4) has not entered all_reduce")
    assert capture.read(path).verdicts == hung().verdicts
    assert source.closed


def test_capture_without_a_name_picks_a_free_one(
    live: Callable[[Source], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        live(Answering(hung()))
        assert capture_command.run(options()) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 3
    assert all(name.startswith("frtop-llama-70b-") for name in names)
    assert capsys.readouterr().out.count(str(tmp_path)) == 3


def test_a_failed_capture_prints_the_reason(live: Callable[[Source], None], tmp_path: Path) -> None:
    live(Answering(hung(), problem=Problem("/x is full", "free some room")))
    with pytest.raises(FrtopError, match="/x is full\n  next: free some room") as caught:
        capture_command.run(options(output=str(tmp_path / "x.cap")))
    assert caught.value.exit_status == 1


class Interrupted(Answering):
    """Its operator presses ^C while it collects, so many times."""

    def __init__(self, frame: Frame, times: int) -> None:
        super().__init__(frame)
        self.left = times

    def capture(
        self, path: Path, *, automatic: bool = False, settle_s: float = 0.0, redact: bool = False
    ) -> None:
        self.path = path

    def frame(self) -> Frame:
        if hasattr(self, "path") and self.left:
            self.left -= 1
            raise KeyboardInterrupt
        return super().frame()

    def finish_capture(self) -> None:
        super().finish_capture()
        size = capture.write(self.path, super().frame(), {}, ())
        self._tell(Writing("capture", "written", str(self.path), 63, 64, size))


def test_an_interrupted_capture_is_written(
    live: Callable[[Source], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Interrupted(hung(), 1)
    live(source)
    path = tmp_path / "x.cap"
    assert capture_command.run(options(output=str(path))) == 0
    assert source.finished == 1
    printed = capsys.readouterr()
    assert "interrupted: writing what has arrived" in printed.err
    assert printed.out.startswith(str(path))
    assert capture.read(path).verdicts == hung().verdicts


def test_a_capture_that_is_interrupted_twice_is_given_up(
    live: Callable[[Source], None], tmp_path: Path
) -> None:
    live(Interrupted(hung(), 2))
    with pytest.raises(KeyboardInterrupt):
        capture_command.run(options(output=str(tmp_path / "x.cap")))


def test_redact_reaches_the_source(live: Callable[[Source], None], tmp_path: Path) -> None:
    source = Answering(hung())
    live(source)
    assert capture_command.run(options(output=str(tmp_path / "x.cap"), redact=True)) == 0
    assert source.redacts


@pytest.mark.parametrize(("place", "says"), [
    (".", "is a folder"), ("none/x.cap", "there is no folder"),
])  # fmt: skip
def test_an_unwritable_path_is_refused_before_connecting(
    place: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=says):
        capture_command.run(options(output=str(tmp_path / place)))


def test_capture_without_a_job_is_an_error(live: Callable[[Source], None], tmp_path: Path) -> None:
    live(Answering(no_agent()))
    with pytest.raises(FrtopError, match="nobody answers at node0:7790"):
        capture_command.run(options(output=str(tmp_path / "x.cap")))


def test_default_names_are_safe_and_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = hung()
    assert frame.job is not None
    odd = replace(frame, job=wire.Job("h", 1, 1, name="/a/../../my job; rm -rf.py"))
    assert default_path(odd, WALL).parent == tmp_path
    assert default_path(odd, WALL).name.startswith("frtop-my-job-rm--rf.py-")
    assert default_path(connecting(), WALL).name.startswith("frtop-job-")
    path = tmp_path / "a.cap"
    path.touch()
    assert unused_path(path) == tmp_path / "a-2.cap"
    (tmp_path / "b.cap").symlink_to(tmp_path / "nowhere")
    assert unused_path(tmp_path / "b.cap") == tmp_path / "b-2.cap"


def test_an_unwritable_folder_is_replaced_by_the_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert default_path(hung(), WALL).parent != tmp_path


def test_a_job_that_was_named_is_searched_for_since_a_host_was_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An agent that was just started takes seconds to come up, and only then searches."""
    monkeypatch.setattr(live_command, "SEARCH_S", 0.5)
    found = hung()
    unknown = replace(connecting(), problem=Problem("no rank has pid 4711"))
    unknown = replace(unknown, hosts=tuple(replace(one, state="reporting") for one in found.hosts))
    source = ScriptedSource([connecting()])
    begin = time.monotonic()

    def report(_: str) -> None:
        waited = time.monotonic() - begin
        source.give(found if waited > 0.9 else unknown if waited > 0.6 else connecting())

    assert live_command.wait_for_report(source, 20.0, report).ranks == found.ranks
    source.give(unknown)
    with pytest.raises(NoAgent, match="no rank has pid 4711"):
        live_command.wait_for_report(source, 20.0, lambda _: None)


@pytest.mark.parametrize(
    ("problem", "error"), [(None, NoJob), (Problem("no rank has pid 4711"), NoAgent)]
)
def test_once_all_hosts_are_searched_there_is_nothing_to_wait_for(
    problem: Problem | None, error: type[FrtopError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_command, "SEARCH_S", 60.0)
    searched = HostView("node0", "reporting", none_found=True)
    searching = replace(searched, name="node1", none_found=False)
    frame = replace(connecting(), problem=problem, hosts=(searched, searching))
    source = ScriptedSource([frame])
    looks = 0

    def report(_: str) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            source.give(replace(frame, hosts=(searched, replace(searching, none_found=True))))

    with pytest.raises(error):
        live_command.wait_for_report(source, 60.0, report)
    assert looks == 3


@pytest.mark.parametrize("problem", [None, Problem("no rank has pid 4711")])
def test_an_agent_that_still_searches_is_waited_for(
    problem: Problem | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_command, "SEARCH_S", 0.1)
    searching = HostView("node0", "reporting", searching=True)
    source = ScriptedSource([replace(connecting(), problem=problem, hosts=(searching,))])
    found, begin = hung(), time.monotonic()

    def report(_: str) -> None:
        if time.monotonic() - begin > 0.5:
            source.give(found)

    assert live_command.wait_for_report(source, 0.2, report).ranks == found.ranks


def test_a_job_that_ended_does_not_hide_one_that_is_still_searched_for() -> None:
    ended = hung()
    ranks = {number: replace(rank, state="dead") for number, rank in ended.ranks.items()}
    host = HostView("node0", "reporting", searching=True)
    source = ScriptedSource([replace(ended, ranks=ranks, hosts=(host,))])
    begin = time.monotonic()

    def report(_: str) -> None:
        if time.monotonic() - begin > 0.5:
            source.give(healthy())

    assert live_command.wait_for_ranks(source, 20.0, report).ranks == healthy().ranks


def test_a_search_that_does_not_end_is_no_proof_that_nothing_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_command, "LOADED_S", 0.3)
    searching = HostView("node0", "reporting", searching=True)
    source = ScriptedSource([replace(connecting(), hosts=(searching,))])
    with pytest.raises(NoJob, match="so far: the search goes on at node0"):
        live_command.wait_for_report(source, 0.1, lambda _: None)


@pytest.mark.parametrize("comes", [True, False])
def test_a_healthy_report_waits_for_what_tells_who_is_slow(
    comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmation, "HEALTHY_NS", 100_000_000)
    monkeypatch.setattr(confirmation, "COMPARED_NS", 10_000_000_000 if comes else 500_000_000)
    source = ScriptedSource([healthy()])
    begin = time.monotonic()

    def report(_: str) -> None:
        if comes and time.monotonic() - begin > 0.4:
            source.give(replace(healthy(), statistics=JobStatistics(0, 1, 0)))

    found = live_command.wait_for_report(source, 20.0, report)
    assert (found.statistics is not None) == comes


@pytest.mark.parametrize("comes", [True, False])
def test_a_mismatch_waits_shortly_for_the_lines_that_led_to_its_ops(
    comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "follower_kinds", tuple)
    scene = three_wait(3)
    scene.waits([2], "barrier", for_s=3, site=None)
    c10d = frame_of("torch/distributed/distributed_c10d.py:9", "barrier")
    scene.at(2, c10d, frame_of("train.py:40", "validate"))
    source = ScriptedSource([scene.judge().frame])
    looked = scene.settle()
    begin = time.monotonic()

    def report(_: str) -> None:
        if comes and time.monotonic() - begin > 0.2:
            source.give(looked)

    found = live_command.wait_for_report(source, 20.0, report)
    evidence = found.verdicts[0].evidence
    assert any("waits at train.py:40 (validate)" in line for line in evidence) == comes


def test_time_in_which_hosts_are_only_being_reached_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr("frtop_tui.cli.live.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("frtop_tui.connect.agent_start.is_starting", lambda: False)
    timer = live_command.AppearanceTimer()
    refused = HostView("a", "failed", Problem("a refused us", "ask"))
    reaching = HostView("b", "connecting", progress="starting ssh")
    frame = Frame(0, 0, health="connecting", hosts=(refused, reaching), problem=refused.problem)
    clock[0] = 20.0
    timer.require_visible(frame)
    assert timer.waited_s == 0
    clock[0] = 60.0
    with pytest.raises(NoAgent, match="a refused us"):
        timer.require_visible(frame)


def test_an_agent_that_has_just_ended_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("frtop_tui.cli.live.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("frtop_tui.connect.agent_start.is_starting", lambda: False)
    timer = live_command.AppearanceTimer()
    gone = Frame(0, 0, hosts=(HostView("a", "failed", Problem("a ended", "wait")),))
    back = Frame(0, 0, hosts=(HostView("a", "connecting"),))
    for clock[0], frame in ((20.0, gone), (21.0, gone), (22.0, back), (23.0, gone), (24.0, gone)):
        timer.require_visible(frame)
    clock[0] = 25.0
    with pytest.raises(Unreachable, match="a ended"):
        timer.require_visible(gone)


def test_progress_names_a_host_that_is_being_reached() -> None:
    hosts = (HostView("a", "reporting"), HostView("b", "connecting", progress="starting\x1b ssh"))
    frame = Frame(0, 0, health="healthy", hosts=hosts)
    assert live_command.describe_progress(frame).startswith("1 of 2 hosts reporting; b: starting")
    assert live_command.describe_progress(frame).isprintable()


@pytest.mark.parametrize(("note", "says", "step"), [
    (f"2 ranks of user ann{wire.OF_OTHERS}; ann can admit you",
     "job of this user was found on node0; 2 ranks of user ann: not looked at",
     "ann can admit you"),
    (f"4 ranks of train.py{wire.RINGS_ELSEWHERE}/dev/shm/site; FRTOP_DIR=/dev/shm/site frtop",
     "job of this user was found on node0; 4 ranks of train.py: rings in /dev/shm/site",
     "FRTOP_DIR=/dev/shm/site frtop"),
    (SCAN_TOOK_TOO_LONG,
     "on node0, and not every process was searched: no search for jobs: it took longer than 2 s",
     "try again"),
    (f"{SCAN_FAILED}: KeyError('odd')",
     "on node0, and not every process was searched: no search for jobs: it failed: KeyError('odd')",
     "try again"),
])  # fmt: skip
def test_where_another_agent_has_the_ranks_the_error_says_how_to_see_them(
    note: str, says: str, step: str
) -> None:
    host = HostView("node0", "reporting", notes=(note,))
    frame = replace(connecting(), hosts=(host,), problem=None)
    source = ScriptedSource([frame])
    with pytest.raises(NoJob) as caught:
        live_command.wait_for_report(source, 0.0, lambda _: None)
    assert caught.value.text.endswith(says)
    assert step in caught.value.next_step


def test_where_ranks_may_not_be_read_the_error_does_not_say_that_there_are_none() -> None:
    there = Coverage(notes=(CoverageNote("3 processes have not said which rank they are"),))
    host = HostView("node0", "reporting")
    frame = replace(connecting(), hosts=(host,), problem=None, coverage=there)
    with pytest.raises(NoJob) as caught:
        live_command.wait_for_report(ScriptedSource([frame]), 0.0, lambda _: None)
    assert "3 processes have not said which rank they are" in caught.value.text
    assert "frtop doctor" in caught.value.next_step
