"""`frtop stacks` on a scripted source that answers like a live one."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from frtop_probe import wire
from frtop_tui.cli import stacks as stacks_command
from frtop_tui.cli.parser import parse
from frtop_tui.connect.source import Asked
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.errors import FrtopError, UsageError
from json_schemas import read_document
from screens.native_scenes import refused, taken, with_native
from screens.scenes import hung, no_agent


class Answering(ScriptedSource):
    """Answers every request in the next frame."""

    def __init__(self, frame: Frame, answer: wire.NativeStacksResponse | None = None) -> None:
        super().__init__([frame])
        self.answer = answer
        self.together = 0

    def do(self, request: Asked, ranks: Iterable[int] = ()) -> None:
        super().do(request, ranks)
        there = self.frame().ranks
        if isinstance(request, wire.SnapshotRequest):
            views = {rank: self._dumped(there[rank]) for rank in ranks}
            self.give(replace(self.frame(), ranks={**there, **views}))
        else:
            (rank,) = ranks
            answer = self.answer or taken(there[rank].identity.pid)
            self.give(with_native(answer, rank, self.frame()))

    def _dumped(self, view: JudgedRank) -> JudgedRank:
        return replace(view, stacks_taken_ns=view.stacks_taken_ns + 5)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Answering:
    one = Answering(hung())
    monkeypatch.setattr("frtop_tui.cli.live.connect", lambda _: one)
    return one


def options(*words: str) -> argparse.Namespace:
    return parse(["stacks", *words])


def run(*words: str) -> int:
    return stacks_command.run(options(*words))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_all_ranks_are_merged_into_one_tree(
    source: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith("rank")
    assert "ranks 0-1,36-38" in said
    assert "  rank 37" in said
    assert "train.py:214  <- yours" in said
    assert "ranks 2-35,39-63: no stack: " in said
    assert source.dumped == [tuple(range(64))]
    assert source.taken_native == []
    assert source.closed


def test_named_ranks_show_all_their_threads(
    source: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--rank", "37,3") == 0
    said = capsys.readouterr().out
    assert "rank 3  node0  pid 90043  blocked  stacks" in said
    assert "rank 37  node4  pid 90077  late" in said
    assert "Thread-1  idle  tid 90084" in said
    assert source.dumped == [(3, 37)]


def test_json_lists_threads_and_frames(
    source: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--rank", "37", "--json") == 0
    (rank,) = read_document(capsys.readouterr().out, "frtop-stacks-1")["ranks"]
    assert (rank["rank"], rank["pid"], rank["error"]) == (37, 90_077, None)
    assert {frame["native"] for thread in rank["threads"] for frame in thread["frames"]} == {False}
    assert run("--rank", "37", "--json", "--native", "--yes") == 0
    (rank,) = read_document(capsys.readouterr().out, "frtop-stacks-1")["ranks"]
    assert (rank["tool"], rank["stopped_s"], rank["note"]) == ("pystack", 0.42, None)
    assert rank["threads"][1]["frames"][1]["function"] == "gloo::ring"


def test_native_stacks_are_taken_one_rank_after_the_other(
    source: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--native", "--yes", "--rank", "37,3") == 0
    output, errors = capsys.readouterr()
    assert source.taken_native == [3, 37]
    assert "in which rank 3 (pid 90043 on node0) stands still" in errors
    assert "rank 37  node4  pid 90077  late  native stacks 0.5s old  pystack held it 0.4s" in output
    assert "C gloo::ring" in output
    assert "3 threads alike" in output


@pytest.mark.parametrize(("typed", "status"), [("y\n", 0), ("YES\n", 0), ("\n", 1), ("n\n", 1)])
def test_a_person_is_asked_first(
    source: Answering, monkeypatch: pytest.MonkeyPatch, typed: str, status: int
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    monkeypatch.setattr("sys.stderr", Terminal())
    assert run("--native", "--rank", "37") == status
    assert source.taken_native == ([37] if status == 0 else [])


@pytest.mark.parametrize(("words", "says"), [
    (("--native",), "none is named"),
    (("--native", "--yes"), "none is named"),
    (("--native", "--rank", "3"), "there is no terminal to ask on\n  next: add --yes"),
])  # fmt: skip
def test_nobody_stands_still_unless_somebody_means_it(
    source: Answering, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match=says) as caught:
        run(*words)
    assert caught.value.exit_status == 2
    assert source.taken_native == []


def test_a_read_only_operator_is_refused_before_anybody_is_asked(source: Answering) -> None:
    source.give(replace(source.frame(), read_only="started with --read-only"))
    with pytest.raises(FrtopError, match="started with --read-only"):
        run("--native", "--yes", "--rank", "37")
    assert source.taken_native == []


def test_why_there_are_none_is_printed(
    source: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    source.answer = refused(90_077, "stopped", "process 90077 was stopped, and stays so")
    assert run("--native", "--yes", "--rank", "37") == 1
    assert "process 90077 was stopped, and stays so" in capsys.readouterr().out


def test_an_agent_that_does_not_answer_is_named(
    source: Answering, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks_command, "NATIVE_S", 0.1)
    monkeypatch.setattr(Answering, "do", ScriptedSource.do)
    assert run("--native", "--yes", "--rank", "37") == 1
    assert "no answer from its agent" in capsys.readouterr().out


def test_stacks_that_do_not_come_are_shown_with_their_age(
    source: Answering, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks_command, "STACKS_S", 0.1)
    monkeypatch.setattr(Answering, "do", ScriptedSource.do)
    view = source.frame().ranks[37]
    dump = wire.StackDump(view.identity.pid, error="refused", help="yama says no")
    snapshot = replace(view.snapshot, dumps=(dump,)) if view.snapshot else None
    ranks = {**source.frame().ranks, 37: replace(view, snapshot=snapshot)}
    source.give(replace(source.frame(), ranks=ranks))
    assert run("--rank", "37") == 1
    assert "yama says no" in capsys.readouterr().out


def test_a_rank_or_job_that_is_not_there_is_an_error(
    source: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_tui.cli.live.APPEAR_S", 0.1)
    with pytest.raises(FrtopError, match="rank 77 is unreachable; 64 ranks are"):
        run("--rank", "77")
    source.give(no_agent())
    with pytest.raises(FrtopError, match="nobody answers"):
        run()
