"""Equal, flaky, different: what follows from pairs of runs."""

from __future__ import annotations

import pytest

from torch_suite import report
from torch_suite.results import Ended, Judgement, Pair, Recorded, Result, State, count

CLEAN = Recorded(rings=3, ops=9)


def pair(without: State, recorded: State, recorder: Recorded = CLEAN) -> Pair:
    return Pair(Ended(without, "", 1.0), Ended(recorded, "", 2.0), recorder)


@pytest.mark.parametrize(
    ("pairs", "judgement"),
    [
        ([("passed", "passed")], "equal"),
        ([("failed", "failed")], "equal"),
        ([("skipped", "passed"), ("skipped", "skipped")], "different"),
        ([("passed", "failed"), ("passed", "passed")], "different"),
        ([("failed", "passed"), ("passed", "passed")], "flaky"),
        ([("passed", "timeout"), ("timeout", "passed")], "flaky"),
    ],
)
def test_only_a_test_that_also_varies_without_us_is_flaky(
    pairs: list[tuple[State, State]], judgement: Judgement
) -> None:
    assert Result("A.test", tuple(pair(*states) for states in pairs)).judgement == judgement


@pytest.mark.parametrize(
    "recorder",
    [
        Recorded(rings=3, ops=9, hook_errors=1),
        Recorded(rings=3, ops=9, off=1),
        Recorded(rings=3, ops=9, lines=("frtop: recorder switched itself off",)),
    ],
)
def test_equal_ends_are_no_excuse_for_a_recorder_that_failed(recorder: Recorded) -> None:
    assert Result("A.test", (pair("passed", "passed", recorder),)).judgement == "finding"


def test_counts_are_of_the_first_pair_of_each_test() -> None:
    results = [
        Result("A.one", (pair("passed", "passed"),)),
        Result("A.two", (pair("failed", "passed"), pair("passed", "passed"))),
        Result("A.three", (pair("skipped", "skipped", Recorded()),)),
    ]
    counts = count(results)
    assert counts.without == {"passed": 1, "failed": 1, "skipped": 1}
    assert counts.recorded == {"passed": 2, "skipped": 1}
    assert counts.judged == {"equal": 2, "flaky": 1}
    assert (counts.with_ops, counts.ops, counts.rings) == (2, 18, 6)


def test_the_summary_names_what_failed_without_frtop_too() -> None:
    result = Result("A.test", (pair("failed", "failed"),))
    assert "failed without frtop, too: A.test" in "\n".join(report.text("rpc", [result]))
