"""Equal, flaky, different: what follows from pairs of runs."""

from __future__ import annotations

import pytest

from torch_suite import report
from torch_suite.results import Ended, Judgement, Pair, Recorded, Result, State

CLEAN = Recorded(rings=3, native=2, ops=9)


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


def test_the_summary_counts_first_pairs_and_names_what_failed_without_frtop_too() -> None:
    results = [
        Result("A.one", (pair("failed", "failed"),)),
        Result("A.two", (pair("failed", "passed"), pair("passed", "passed"))),
        Result("A.three", (pair("skipped", "skipped", Recorded()),)),
    ]
    said = "\n".join(report.text("rpc", results))
    assert "without   2 failed, 1 skipped  (3 s)" in said
    assert "judged    2 equal, 1 flaky" in said
    assert "18 ops in 6 rings, 4 of native kernels; 2 tests have ops" in said
    assert "failed without frtop, too: A.one" in said
