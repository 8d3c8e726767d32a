"""`frtop numbers` on a scripted source: who is asked, what is said before, and when it ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from connect.scripted_source import ScriptedSource
from features.tensor_checks.sampled_ranks import recorded_now
from features.tensor_checks.test_comparison import GROUP, inputs, step
from features.tensor_checks.test_sent_and_received import GROUP as STAGES
from features.tensor_checks.test_sent_and_received import arrives
from frtop_probe.features.tensor_checks.messages import NumberState
from frtop_probe.recorder.requests import control
from frtop_tui.cli.parser import parse
from frtop_tui.connect.source import Asked
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.features.tensor_checks import command as numbers_command
from frtop_tui.features.tensor_checks.comparison import findings
from frtop_tui.features.tensor_checks.orders import (
    MOST_NOTE,
    NO_NUMBERS,
    JobNumbers,
    RankControl,
    RecordOrder,
    note_problem,
)
from frtop_tui.features.tensor_checks.samples import GroupNames
from json_schemas import read_document
from screens.scenes import healthy

ON = NumberState(True, 1, 10, 60)
OFF = NumberState()


class Answering(ScriptedSource):
    """Answers each order at once; what is sampled ends as `gone` says."""

    def __init__(
        self, frame: Frame, problems: Mapping[int, str] = {}, gone: Mapping[int, str] = {}
    ) -> None:
        super().__init__([frame])
        self._problems, self._gone = problems, gone

    def do(self, request: Asked, ranks: Iterable[int] = ()) -> None:
        super().do(request, ranks)
        order = request
        assert isinstance(order, RecordOrder)
        before: JobNumbers = self.news()["tensor_checks"]
        controls = {
            rank: RankControl(None, self._problems[rank])
            if rank in self._problems
            else RankControl(recorded_now(ON if order.samples else OFF))
            for rank in order.ranks
        }
        self.given["tensor_checks"] = replace(
            before,
            controls={**before.controls, **controls},
            states=dict.fromkeys(order.ranks, ON) if order.samples else {},
            gone=self._gone if order.samples else before.gone,
            orders=len(self.orders["tensor_checks"]),
        )


def numbers(source: Answering, *options: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("frtop_tui.cli.live.connect", lambda _: source)
    return numbers_command.run(parse(["numbers", *options]))


def small() -> Frame:
    frame = healthy()
    ranks = {rank: view for rank, view in frame.ranks.items() if rank < 4}
    return replace_fields(frame, ranks=ranks)


def test_a_rank_that_is_gone_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Answering(small(), gone={1: "ended by signal 9"})
    begin = time.monotonic()
    assert numbers(source, "--yes", "--seconds", "600", monkeypatch=monkeypatch) == 1
    assert time.monotonic() - begin < 60
    said = capsys.readouterr()
    assert "rank 1: ended by signal 9" in said.out
    assert "asks ranks 0-3 of llama-70b to sample" in said.err
    end = source.orders["tensor_checks"][-1]
    assert end.own
    assert not end.samples  # the others would go on for nothing
    assert source.chosen[-1] is not None  # another job cannot take its place


@pytest.mark.parametrize(
    ("note", "says"),
    [
        (" ", "write the text of the note"),
        ("x" * 300, "up to 200 characters; this one has 300"),
    ],
)
def test_a_note_has_a_text_and_an_end(note: str, says: str) -> None:
    assert MOST_NOTE == control.MAX_NOTE  # a rank would cut a longer one
    assert note_problem("x" * MOST_NOTE) == ""
    with pytest.raises(UsageError, match=says):
        parse(["recorder", "--note", note])
    assert parse(["recorder", "--phases", "on"]).note is None
    assert parse(["recorder", "--note", " loss jumped "]).note == "loss jumped"


def test_nobody_is_asked_to_agree_where_nobody_can_sample(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Answering(small(), dict.fromkeys(range(4), "no recorder"))
    with pytest.raises(FrtopError, match="ranks 0-3: no recorder"):
        numbers(source, monkeypatch=monkeypatch)
    assert "costs" not in capsys.readouterr().err
    assert not any(order.samples for order in source.orders["tensor_checks"])


def test_ranks_that_cannot_be_asked_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Answering(small(), dict.fromkeys((2, 3), "no recorder"))
    with pytest.raises(UsageError):  # as there is no terminal
        numbers(source, monkeypatch=monkeypatch)
    said = capsys.readouterr().err
    assert "not asked: ranks 2-3: no recorder" in said
    assert "asks ranks 0-1 of" in said


def test_nothing_to_sample_is_no_order_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Answering(small())
    with pytest.raises(UsageError, match="nothing to sample"):
        numbers(source, "--ops", "0", monkeypatch=monkeypatch)
    assert source.orders["tensor_checks"] == []


def test_a_stop_says_that_there_was_nothing_to_stop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert numbers(Answering(small()), "--stop", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out == "no rank samples: nothing to stop\n"
    assert numbers(Answering(small()), "--stop", "--json", monkeypatch=monkeypatch) == 0
    assert read_document(capsys.readouterr().out, "frtop-numbers-stopped-1")["stopped"] == {}


def test_a_document_has_all_findings_and_the_rows_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replicas = [
        one for r in range(4) for role, sums in (("gradient", "gh"), ("parameter", f"a{r % 2}"))
        for one in step(r, 1, sums, role=role)
    ]  # fmt: skip
    samples = [*inputs(3, "aaaa"), *replicas, *arrives("abcd", "abxd")]
    source = Answering(small())
    source.given["tensor_checks"] = replace(
        NO_NUMBERS,
        found=findings(samples, 4),
        taken=samples,
        names=GroupNames({GROUP: "dp:0", STAGES: "pp:0"}),
    )
    assert (
        numbers(source, "--yes", "--first", "--json", "--rows", "5", monkeypatch=monkeypatch) == 3
    )
    document = read_document(capsys.readouterr().out, "frtop-numbers-1")
    found = document["findings"]
    (same,), (differ,), (message,) = found["same"], found["steps"], found["messages"]
    assert (same["kind"], same["ops"], same["steps"]) == ("all_reduce", 6, [0, 2])
    assert (differ["role"], differ["odd"]) == ("parameter", [])  # two halves of replicas
    assert [side["ranks"] for side in differ["sides"]] == [[0, 2], [1, 3]]
    assert (message["message"], message["changed"]) == (3, None)
    assert found["equal_messages"] == {"pp:0": 3}
    assert [row["step"] for row in document["rows"]] == [0] * 5
    assert document["more_rows"] == len(samples) - 5
