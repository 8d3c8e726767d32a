"""Reported values are compared step by step: what is a fact about a rank, and what is normal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import pytest

from connect.fakes import frame_of, rank_view
from features.report.scenes import LR, OTHER_LR, loss, sent
from frtop_probe import wire
from frtop_probe.statistics.reported_values import (
    FEWEST,
    MOST,
    NOT_FINITE,
    ReportedValue,
    packed,
    remembered,
    unpacked,
)
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.files.formats.frame_json import frame_json
from frtop_tui.files.redaction import redacted
from frtop_tui.job.reported import ReportedFinding, ReportedRow, merged_values, reported_rows
from frtop_tui.text.html_page import html_page
from frtop_tui.text.incident import incident_of
from frtop_tui.text.json_document import document
from frtop_tui.text.markdown import markdown
from frtop_tui.text.reported_words import (
    between_words,
    finding_lines,
    reported_changes,
    reported_lines,
)

NAN, INF = math.nan, math.inf
NAN_WORDS = "loss: rank 1 reported nan at step 5; there 2 other ranks have finite values"
HOSTILE = "[bold]<b>\x1b]0;x\x07"
Reported = Mapping[str, Sequence[float]]


def view(rank: int, reported: Reported, **fields: object) -> JudgedRank:
    values = tuple(sent(name, one) for name, one in reported.items())
    return rank_view(rank, "node0", reported=values, **fields)


def frame(*ranks: Reported) -> Frame:
    return frame_of(*(view(rank, reported) for rank, reported in enumerate(ranks)))


def row(*values: Sequence[float]) -> ReportedRow:
    """The row of one name, whose values each rank has from step 1 on."""
    (found,) = reported_rows(frame(*({"x": one} for one in values)).ranks)
    return found


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param([loss(0), loss(1)], [], id="a loss differs on both ranks"),
        pytest.param([loss(rank) for rank in range(8)], [], id="a loss differs on every rank"),
        pytest.param([LR] * 4, [], id="a learning rate is equal"),
        pytest.param([LR, LR, OTHER_LR, LR], [("differs", (2,), 5, 2)], id="one differs"),
        pytest.param([LR, LR, OTHER_LR], [("differs", (2,), 5, 2)], id="one of three"),
        pytest.param([LR[:2], LR[:2], OTHER_LR[1:3]], [], id="too few steps show nothing"),
        pytest.param([LR, LR, OTHER_LR, OTHER_LR], [], id="two of four: no majority"),
        pytest.param([[0.1] * 4, [0.2] * 4], [("constant", (0,), 4, 4)], id="two constants"),
        pytest.param([[1.0] * 4, [2.0] * 4, [3.0] * 4], [], id="each has its own constant"),
        pytest.param(
            [[*LR, 0.01, 0.01, 0.01], [*LR, 0.01, 0.01, 0.02]], [("differs", (0, 1), 8, 1)],
            id="two ranks that agree otherwise",
        ),
        pytest.param(
            [loss(0), [*loss(1)[:3], NAN, *loss(1)[4:]]], [("not finite", (1,), 4, 1)],
            id="one NaN",
        ),
        pytest.param(
            [loss(0), [*loss(1)[:3], -INF, INF], loss(2)], [("not finite", (1,), 4, 2)],
            id="infinities",
        ),
        pytest.param([[1.0, NAN, NAN]] * 3, [], id="NaN on all ranks"),
        pytest.param([[*loss(0)[:4], NAN], [*loss(1)[:3], NAN, NAN], [*loss(2)[:4], NAN]],
                     [("not finite", (1,), 4, 1)], id="NaN spreads"),
        pytest.param([LR, [*LR[:4], NAN], LR, LR], [("not finite", (1,), 5, 1)],
                     id="NaN among equal values is one finding"),
        pytest.param([[0.0] * 4, [-0.0] * 4, [0.0] * 4], [("differs", (1,), 4, 4)],
                     id="the bits count"),
        pytest.param([loss(0)], [], id="one rank"),
    ],
)  # fmt: skip
def test_findings(
    values: Sequence[Sequence[float]], found: list[tuple[str, tuple[int, ...], int, int]]
) -> None:
    one = row(*values)
    assert [(f.kind, f.ranks, f.step, f.steps) for f in one.findings] == found


def test_the_row_is_of_the_newest_step_that_ranks_have_in_common() -> None:
    one = row([1.0, 2.0, 9.0], [3.0, 5.0])
    assert (one.step, one.values, one.middle) == (2, {0: 2.0, 1: 5.0}, 3.5)
    assert [value for value, _ in one.finite] == [2.0, 5.0]
    assert (one.are_equal, one.compared) == (False, 2)


def test_values_of_different_steps_are_never_compared() -> None:
    views = [
        rank_view(0, "node0", reported=(sent("x", [1.0] * 3, 1),)),
        rank_view(1, "node0", reported=(sent("x", [2.0] * 3, 4),)),
    ]
    (one,) = reported_rows({view.rank: view for view in views})
    assert (one.step, one.values, one.findings) == (None, {}, ())
    assert between_words(one) == "no step in common"


def test_values_within_a_step_are_compared_only_if_they_are_as_many() -> None:
    """A rank may be between two micro-batches."""

    def of(rank: int, times: int) -> JudgedRank:
        values = [ReportedValue(1, 1.0), ReportedValue(2, float(times), times)]
        return rank_view(rank, "node0", reported=(packed("x", values, 1, 0),))

    (one,) = reported_rows({0: of(0, 3), 1: of(1, 4)})
    assert one.step == 1
    (one,) = reported_rows({0: of(0, 3), 1: of(1, 4), 2: of(2, 4)})
    assert (one.step, set(one.values)) == (1, {0, 1, 2})
    (one,) = reported_rows({0: of(0, 4), 1: of(1, 4), 2: of(2, 4)})
    assert one.step == 2


def test_a_rank_that_has_ended_does_not_hold_the_row_back() -> None:
    views = [
        view(0, {"x": loss(0)}),
        view(1, {"x": loss(1)}),
        view(2, {"x": loss(2)[:2]}, state="dead"),
    ]
    (one,) = reported_rows({view.rank: view for view in views})
    assert (one.step, one.ranks) == (5, (0, 1, 2))


def test_a_nan_is_a_finding_when_others_no_longer_have_its_step() -> None:
    odd = [*loss(1, 9), NAN, *loss(1, 200)]
    (mine,) = merged_values((), (sent("x", odd),))
    (other,) = merged_values((), (sent("x", loss(0, 210)),))
    assert len(mine.steps) == MOST + 1
    views = {
        0: rank_view(0, "node0", reported=(other,)),
        1: rank_view(1, "node0", reported=(mine,)),
    }
    (one,) = reported_rows(views)
    assert [(f.kind, f.ranks, f.step, f.others, f.other) for f in one.findings] == [
        ("not finite", (1,), 10, (0,), None)
    ]
    late = packed("x", unpacked(other), 11, 0)  # its agent came later: step 10 was not seen
    views[0] = rank_view(0, "node0", reported=(late,))
    (one,) = reported_rows(views)
    assert one.findings == ()


def test_what_is_remembered_is_bounded() -> None:
    values = [ReportedValue(step, NAN) for step in range(500)]
    assert len(remembered(values, 1)) == MOST + NOT_FINITE
    assert len(remembered(values, 32)) == FEWEST + NOT_FINITE
    news = [sent(f"n{number}" * 40, [1.0]) for number in range(100)]
    known = merged_values((), news)
    assert len(known) == 32
    assert max(len(one.name) for one in known) == 64


def test_updates_may_repeat_what_is_known() -> None:
    first = merged_values((), (sent("x", [1.0, 2.0]),))
    again = merged_values(first, (sent("x", [1.0, 2.0, 3.0]),))
    (one,) = merged_values(again, (packed("x", [ReportedValue(3, 4.0, 2)], 1, 0),))
    assert [tuple(value) for value in unpacked(one)] == [(1, 1.0, 1), (2, 2.0, 1), (3, 4.0, 2)]


def test_a_damaged_message_costs_only_its_values() -> None:
    damaged = wire.ReportedValues("x", (1, 2, 3), (1.0, "a text", "nan"), (1, 1))
    (one,) = merged_values((), (damaged,))
    assert [value.step for value in unpacked(one)] == [1]


def test_the_words() -> None:
    ranks = frame(
        {"loss": loss(0), "lr": LR}, {"loss": [*loss(1)[:4], NAN], "lr": LR},
        {"loss": loss(2), "lr": OTHER_LR},
    ).ranks  # fmt: skip
    assert reported_lines(ranks) == [
        "reported by the job",
        "name  step  least    median      most  ranks  between ranks",
        "loss     5    0.2  0.342857  0.485714  0-2    nan: rank 1, step 5; differ",
        "lr       5   0.01      0.01      0.02  0-2    only rank 2 differs",
        f"{NAN_WORDS} (0.2 on rank 0)",
        "lr: rank 2 differs in 2 of 5 steps, last at step 5: 0.02, while 2 other ranks have 0.01",
    ]
    assert reported_lines(frame({}).ranks) == []


def test_values_that_look_alike_are_shown_in_full() -> None:
    (text,) = finding_lines([row([1.0] * 4, [1.0 + 2**-40] * 4)])
    assert "1.0 and rank 1 1.0000000000009095" in text


def test_reports_and_documents_have_them_and_escape_names() -> None:
    found = frame({HOSTILE: [1.0, NAN]}, {HOSTILE: [1.0, 2.0]})
    page = html_page(incident_of(found, "1"))
    assert "Values that the job reported" in page
    assert "[bold]<b>" not in page
    assert "[bold]&lt;b&gt;" in page
    assert "nan: rank 0, step 2" in markdown(incident_of(found, "1"))
    (one,) = json.loads(json.dumps(document(found), allow_nan=False))["reported"]
    assert (one["step"], one["not_finite"], one["equal"]) == (2, {"0": "nan"}, False)
    assert [finding["kind"] for finding in one["findings"]] == ["not finite"]
    (rank, _) = json.loads(frame_json(found))["frame"]["ranks"].values()
    assert rank["reported"][0]["values"] == [1.0, "nan"]
    assert "Values that the job reported" not in html_page(incident_of(frame({}), "1"))


def test_redaction_keeps_the_facts() -> None:
    found = frame({"loss": [1.0, NAN]})
    assert redacted(found).ranks[0].reported == found.ranks[0].reported


def test_two_recordings_are_compared_by_name() -> None:
    before = frame({"loss": [4.0, 3.0], "lr": [0.1]}, {"loss": [6.0, 5.0], "lr": [0.1]})
    after = frame({"loss": [1.0] * 9, "tokens": [NAN]}, {"loss": [2.0] * 9, "tokens": [NAN]})
    assert reported_changes(before, after) == [
        "loss: 4 at step 2, then 1.5 at step 9",
        "lr: 0.1 at step 1, then not reported",
        "tokens: not reported, then nan: all ranks at step 1",
    ]


def test_a_finding_never_becomes_a_verdict() -> None:
    found = frame({"x": [0.1] * 4}, {"x": [NAN] * 4})
    assert isinstance(reported_rows(found.ranks)[0].findings[0], ReportedFinding)
    assert (found.verdicts, found.health) == ((), frame({}).health)
