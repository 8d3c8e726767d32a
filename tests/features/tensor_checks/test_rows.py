"""Rows of samples: their order, what a terminal of 80 columns shows, and what programs get."""

from __future__ import annotations

import json

import msgspec
import pytest

from features.tensor_checks.test_comparison import LINE, op, step
from features.tensor_checks.test_sent_and_received import GROUP as STAGES
from features.tensor_checks.test_sent_and_received import received, sent
from frtop_probe.features.tensor_checks.messages import NumberSample
from frtop_tui.cli.parser import parse
from frtop_tui.errors import UsageError
from frtop_tui.features.tensor_checks.command import json_text
from frtop_tui.features.tensor_checks.events import SampleRow
from frtop_tui.features.tensor_checks.rows import CHANGED, ordered, row_lines, row_of
from frtop_tui.features.tensor_checks.samples import GroupNames, RankSample

NAMES = GroupNames({("0", "0-3", 0): "dp:0", STAGES: "pp:0"})
FIGURES = NumberSample(
    1, 1, 12, "all_reduce", "output", "late", 6, 5, 3, "bfloat16", 12_345_678, 24_691_356,
    24_691_356, "abcd", 1_234_567, 12, minimum=-1.23456e-05, maximum=3.4e38, magnitude=1.2345e10,
    norm=7.0, shape="[3, 3] x 64, [12]",
)  # fmt: skip


def test_rows_are_in_the_order_of_steps_ops_and_ranks() -> None:
    samples = [
        *step(1, 3, "ab"),
        received(5, 0, 1, "a"),
        *(op(rank, 2, "x", role=role) for rank in (3, 1) for role in ("output", "input")),
        sent(4, 1, 1, "a"),
    ]
    found = [(one.sample.step, one.sample.role, one.rank) for one in ordered(samples[::-1])]
    assert found == [
        (1, "input", 1), (1, "input", 3), (1, "output", 1), (1, "output", 3),
        (1, "sent", 4), (1, "received", 5), (3, "parameter", 1), (3, "parameter", 1),
    ]  # fmt: skip


def test_a_terminal_of_80_columns_shows_all_figures() -> None:
    late = RankSample(102_400, FIGURES, ("0", "0-3", 0), LINE)
    samples = [late, op(1, 3, "", error="in the memory of a device"), sent(4, 1, 1, "a", nans=3)]
    lines = list(row_lines(samples, NAMES, 10))
    assert all(len(line) <= 80 for line in lines), lines
    text = "\n".join(lines)
    assert "step 6  all_reduce #12 dp:0  train.py:231  bfloat16 [3, 3] x 64, [12]" in text
    assert "102400  output    1.2e+06     12 -1.23e-05   3.4e+38  1.23e+10         7  late" in text
    assert "     1  output    not read: in the memory of a device" in text
    assert "step 1  message #1 pp:0 from rank 4 to 5  float32" in text
    assert text.endswith(f"late: may have been changed by {CHANGED['late']}")


def test_more_rows_are_counted_and_no_samples_are_no_table() -> None:
    samples = [op(rank, 1, "a") for rank in range(4)]
    lines = list(row_lines(samples, NAMES, 3))
    assert lines[-1] == "and 1 more: --rows 4"
    assert sum(line.startswith("     ") for line in lines) == 3
    assert list(row_lines([], NAMES, 3)) == []


def test_programs_get_a_row_with_names_in_place_of_ids() -> None:
    late = RankSample(2, FIGURES, ("0", "0-3", 0), LINE, at_ns=5)
    row = msgspec.json.decode(json_text(row_of(late, NAMES)), type=SampleRow)
    assert (row.step, row.number, row.group, row.rank, row.role) == (6, 12, "dp:0", 2, "output")
    assert (row.nans, row.infinities, row.maximum, row.norm) == (1_234_567, 12, 3.4e38, 7.0)
    assert (row.shape, row.may_have_changed) == ("[3, 3] x 64, [12]", CHANGED["late"])
    message = json.loads(json_text(row_of(received(5, 0, 3, "a", tag=9), NAMES)))
    assert (message["peer"], message["tag"], message["message"]) == (4, 9, 3)
    assert message["may_have_changed"] == ""
    (parameter,) = step(0, 3, "a")
    assert (row_of(parameter, NAMES).name, row_of(parameter, NAMES).peer) == ("parameter 0", None)


def test_how_many_rows_is_a_number() -> None:
    assert parse(["numbers"]).rows is None
    assert parse(["numbers", "--rows"]).rows == 500
    assert parse(["numbers", "--rows", "7", "--json"]).rows == 7
    with pytest.raises(UsageError, match="'0' is not a number of rows"):
        parse(["numbers", "--rows", "0"])
