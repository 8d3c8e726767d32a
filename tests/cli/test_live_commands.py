"""`frtop capture` and `frtop tensors` on a scripted source that answers like a live one."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from frtop_probe import wire
from frtop_probe.unprepared.discovery.facts import SCAN_FAILED
from frtop_probe.unprepared.worker import SCAN_DID_NOT_RETURN
from frtop_tui.cli import capture as capture_command
from frtop_tui.cli import live as live_command
from frtop_tui.connect.base import Asked, Source
from frtop_tui.diagnosis import confirmation
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, NoAgent, NoJob, UsageError
from frtop_tui.features.tensors import command as tensors_command
from frtop_tui.features.tensors.follow import SaveOrder
from frtop_tui.files import capture
from frtop_tui.files.output_path import default_path, unused_path
from frtop_tui.job.model import (
    Coverage,
    CoverageNote,
    HostView,
    Problem,
    Writing,
)
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import byte_size
from screens.scenes import WALL, connecting, healthy, hung, no_agent

GRADIENT = wire.TensorSummary(
    "input", "float32", (4, 1024), "cpu", 16384, 4096, 4096, -1.5, 2.5, 0.25, 64.0, 3, 1,
    ("0.5", "nan", "-1.5"), "9a3f01c2",
)  # fmt: skip
ANSWER = wire.TensorsResponse(
    1, "node0", 0, 5, (wire.OpTensors(30_000, (GRADIENT,)), wire.OpTensors(30_001, (), "freed"))
)


class Answering(ScriptedSource):
    """Answers every request in the next frame."""

    def __init__(
        self, frame: Frame, answer: wire.TensorsResponse = ANSWER, problem: Problem | None = None
    ) -> None:
        super().__init__([frame])
        self._answer = answer
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

    def do(self, request: Asked, ranks: Iterable[int] = ()) -> None:
        super().do(request, ranks)
        if isinstance(request, SaveOrder):
            request.path.write_bytes(b"data")
            self._tell(Writing("tensors", "written", str(request.path), 4, 4, 4))
            return
        views = self.frame().ranks
        asked = {rank: replace(views[rank], tensors=self._answer) for rank in ranks}
        ranks = {**views, **asked}
        self.give(replace(self.frame(), ranks=ranks))

    def _tell(self, writing: Writing) -> None:
        self.give(replace(self.frame(), writings=(writing,)))


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Callable[[Source], None]:
    def give(source: Source) -> None:
        for module in (capture_command, tensors_command):
            monkeypatch.setattr(module, "connect", lambda options: source)

    return give


def options(**fields: object) -> argparse.Namespace:
    known: dict[str, object] = {
        "output": None, "save": None, "rank": 0, "op": 0, "json": False, "redact": False,
        "members": False,
    }  # fmt: skip
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
    assert "interrupted, writing what has come" in printed.err
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


def test_tensors_prints_a_table(
    live: Callable[[Source], None], capsys: pytest.CaptureFixture[str]
) -> None:
    source = Answering(hung())
    live(source)
    assert tensors_command.run(options()) == 0
    head, row, trouble = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["op", "kind", "number", "group", "role"]
    assert row.split() == [
        "30000", "all_reduce", "#8812", "dp:0", "input", "float32", "4x1024", "-1.5", "2.5",
        "0.25", "64", "3", "1", "9a3f01c2", "0.5", "nan", "-1.5",
    ]  # fmt: skip
    assert trouble == "op 30001 op: freed"
    assert source.inspected == [0]
    assert source.closed


def test_tensors_prints_json(
    live: Callable[[Source], None], capsys: pytest.CaptureFixture[str]
) -> None:
    live(Answering(hung()))
    assert tensors_command.run(options(json=True, op=30_000)) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rank"], found["host"]) == (0, "node0")
    (op,) = found["ops"]
    assert op["kind"] == "all_reduce"
    assert op["tensors"][0]["checksum"] == "9a3f01c2"


@pytest.mark.parametrize(("source", "arguments", "message"), [
    (Answering(hung(), wire.TensorsResponse(1, "node0", 0, 5, (), "silent", "rank 0 holds the GIL; "
                                          "look at its stack")), {}, "holds the GIL\n  next: look"),
    (Answering(hung(), wire.TensorsResponse(1, "node0", 0, 5)), {}, "has no pending op"),
    (Answering(hung()), {"op": 7}, "op 7 of rank 0 is not pending\n  next: pending: op 30000"),
    (Answering(replace(hung(), read_only="your key may only read there; ask its owner")), {},
     "may only read there\n  next: ask"),
    (Answering(no_agent()), {}, "nobody answers"),
])  # fmt: skip
def test_a_rank_that_cannot_be_asked_is_an_error_with_a_next_step(
    live: Callable[[Source], None], source: Answering, arguments: dict[str, object], message: str
) -> None:
    live(source)
    with pytest.raises(FrtopError, match=message) as caught:
        tensors_command.run(options(**arguments))
    assert caught.value.exit_status == 1


def test_an_op_is_found_by_its_number_too(
    live: Callable[[Source], None], capsys: pytest.CaptureFixture[str]
) -> None:
    live(Answering(hung()))
    assert tensors_command.run(options(op=8812)) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "30000"
    live(Answering(hung()))
    with pytest.raises(FrtopError, match=r"pending: op 30000 \(#8812 all_reduce\), op 30001"):
        tensors_command.run(options(op=7))


def test_a_missing_rank_is_an_error(
    live: Callable[[Source], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_tui.cli.live.APPEAR_S", 0.1)
    live(Answering(hung()))
    with pytest.raises(FrtopError, match="rank 77 is unreachable; 64 ranks are"):
        tensors_command.run(options(rank=77))


def test_saving_prints_the_size_first(
    live: Callable[[Source], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Answering(hung())
    live(source)
    path = tmp_path / "grad.safetensors"
    assert tensors_command.run(options(save=str(path))) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"writing 16,384 bytes to {path}"
    assert source.orders["tensors"] == [SaveOrder(0, 30_000, path)]


def test_saving_needs_one_op(live: Callable[[Source], None], tmp_path: Path) -> None:
    ops = (wire.OpTensors(30_000, (GRADIENT,)), wire.OpTensors(30_001, (GRADIENT,)))
    live(Answering(hung(), wire.TensorsResponse(1, "node0", 0, 5, ops)))
    with pytest.raises(UsageError, match=r"--op: op 30000 \(#8812 all_reduce\), op 30001"):
        tensors_command.run(options(save=str(tmp_path / "x")))


@pytest.mark.parametrize(("verdict", "waits_in", "chosen", "why"), [
    (True, 30_002, 30_000, "the verdict is about it"),
    (False, 30_002, 30_002, "rank 0 waits in it"),
    (False, 0, 29_999, "it is the oldest"),
])  # fmt: skip
def test_of_several_pending_ops_the_one_that_is_waited_for_is_compared(
    live: Callable[[Source], None],
    capsys: pytest.CaptureFixture[str],
    *,
    verdict: bool,
    waits_in: int,
    chosen: int,
    why: str,
) -> None:
    frame = hung()
    first = frame.ranks[0].pending[0]
    pending = tuple(
        replace(first, sequence=30_000 + n, number=8812 + n) for n in (2, 0, 1, -1)
    )  # as buckets of DDP are: all of them in one group
    found = tuple(wire.OpTensors(one.sequence, (GRADIENT,)) for one in pending)
    blocked = next((one for one in pending if one.sequence == waits_in), None)
    view = replace(frame.ranks[0], pending=pending, blocked_on=blocked)
    frame = replace(frame, ranks={**frame.ranks, 0: view})
    frame = frame if verdict else replace(frame, verdicts=())
    live(Answering(frame, wire.TensorsResponse(1, "node0", 0, 5, found)))
    assert tensors_command.run(options(members=True, json=True)) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["number"] == 8812 + chosen - 30_000
    named = f"op {chosen} (#{8812 + chosen - 30_000} all_reduce)"
    assert said.err.startswith(f"{named} is compared: {why}. For --op there are also op ")


def test_members_of_the_only_op_are_compared_without_a_word(
    live: Callable[[Source], None], capsys: pytest.CaptureFixture[str]
) -> None:
    live(Answering(hung()))
    assert tensors_command.run(options(members=True)) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith("all_reduce #8812 of dp:0")


def test_a_rank_without_tensors_is_called_by_its_number_and_who_waits_is_named(
    live: Callable[[Source], None],
) -> None:
    frame = hung()
    pid = frame.ranks[37].identity.pid
    text = f"process {pid} is pending in no op with tensors: ask the ranks that are"
    live(Answering(frame, wire.TensorsResponse(1, "node4", 0, 5, (), "none", text)))
    with pytest.raises(FrtopError) as caught:
        tensors_command.run(options(rank=37))
    assert caught.value.text.startswith(f"rank 37 (process {pid}) is pending in no op")
    assert caught.value.next_step == "rank 0 waits for it: `frtop tensors --rank 0`"


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


def test_progress_names_a_host_that_is_being_reached() -> None:
    hosts = (HostView("a", "reporting"), HostView("b", "connecting", progress="starting\x1b ssh"))
    frame = Frame(0, 0, health="healthy", hosts=hosts)
    assert live_command.describe_progress(frame).startswith("1 of 2 hosts reporting; b: starting")
    assert live_command.describe_progress(frame).isprintable()


@pytest.mark.parametrize(("note", "says", "step"), [
    (f"2 ranks of user ann{wire.OF_OTHERS}; ann can admit you",
     "job of this user was found on node0; 2 ranks of user ann: not looked at",
     "ann can admit you"),
    (SCAN_DID_NOT_RETURN,
     "on node0, and not all was looked at: no search for jobs: a read of /proc did not return",
     "try again"),
    (f"{SCAN_FAILED}: KeyError('odd')",
     "on node0, and not all was looked at: no search for jobs: it failed: KeyError('odd')",
     "try again"),
])  # fmt: skip
def test_where_only_others_have_ranks_the_error_says_whom_to_ask(
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
