"""The parsers of RAS's answers: what they take out, and that nothing in an answer harms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_probe.ras import json_answer
from frtop_probe.ras.json_answer import AnswerError, parse_json
from frtop_probe.ras.text_answer import parse_text
from ras.answers import (
    ADDRESS,
    HASH,
    OLDEST_TEXT,
    TEXT,
    as_json,
    communicator,
    document,
    missing,
    rank,
)


def test_json_lists_every_rank_with_its_counts() -> None:
    report = parse_json(
        as_json(communicator([rank(1, 11, 8811), rank(0, 10)], [missing(2, 12, dead=True)]))
    )
    assert (report.form, report.nccl_version) == ("json", "2.28.9")
    assert (report.collection_s, report.timeouts, report.notes) == (2.05, 1, ())
    (one,) = report.communicators
    assert (one.hash, one.size) == (HASH, 3)
    assert [(r.rank, r.host, r.pid, r.cuda_device) for r in one.ranks] == [
        (0, ADDRESS, 10, 0),
        (1, ADDRESS, 11, 1),
    ]
    assert [dict(r.counts)["AllReduce"] for r in one.ranks] == [8812, 8811]
    assert one.missing == (wire.RasMissingRank(2, ADDRESS, 12, 2, 2, True, True),)


def test_a_process_that_ras_does_not_know_has_no_host_and_no_pid() -> None:
    report = parse_json(as_json(communicator([rank(0, -1, host="unknown")])))
    assert (report.communicators[0].ranks[0].host, report.communicators[0].ranks[0].pid) == ("", 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hash": "27a0"}, "its hash is none"),
        ({"secondary_hash": "x"}, "its second hash is none"),
        ({"size": 1}, "a rank outside of its 1"),
        ({"ranks_count": 7}, "counts 7 ranks, and lists 2"),
        ({"missing_ranks_count": 1}, "counts 1 missing ranks, and lists 0"),
        ({"ranks": [rank(0, 10), rank(0, 11)]}, "a rank twice"),
    ],
)
def test_a_communicator_that_contradicts_itself_is_left_out_with_a_note(
    changes: dict[str, Any], reason: str
) -> None:
    good = communicator([rank(0, 10)], name="0x1")
    bad = communicator([rank(0, 10), rank(1, 11)]) | changes
    report = parse_json(as_json(bad, good))
    assert [one.hash for one in report.communicators] == ["0x1"]
    assert reason in report.notes[0]


def test_too_many_ranks_are_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_answer, "MAX_RANKS", 3)
    ones = [communicator([rank(0, 10), rank(1, 11)], name=f"0x{n}") for n in range(3)]
    report = parse_json(as_json(*ones))
    assert len(report.communicators) == 1
    assert "2 of 3 communicators are left out" in report.notes[0]


def test_the_version_in_an_answer_is_a_version_or_nothing() -> None:
    report = parse_json(as_json(version="2.29.7+cuda13.2\x1b[31m"))
    assert report.nccl_version == "2.29.7"
    assert parse_json(as_json(version="\x1b[31m")).nccl_version == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"communicators": 3}',
        b'{"communicators": [3]}',
        b"[" * 100_000,
        b'{"communicators": [], "more": ' + b"[" * 100_000,
        as_json(communicator([rank(0, 2**40)])),
        as_json(communicator([rank(0, 10, 2**64)])),
        as_json(communicator([rank(0, 10, -1)])),
        as_json(communicator([rank(0, 10, host="x" * 500)])),
        b"\xff\xfe",
    ],
)
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    with pytest.raises(AnswerError):
        parse_json(data)


def test_an_answer_that_is_cut_off_is_known_as_such() -> None:
    data = as_json(communicator([rank(0, 10)]))
    for end in range(1, len(data) - 2):
        with pytest.raises(AnswerError) as error:
            parse_json(data[:end])
        assert error.value.cut, data[:end]


def test_text_gives_summary_problems_and_the_ranks_that_it_names() -> None:
    report = parse_text(TEXT.encode())
    assert (report.form, report.nccl_version, report.collection_s) == ("text", "2.27.3", 2.05)
    assert report.timeouts == 2
    assert report.rows == (
        wire.RasSummaryRow(0, 1, 2, "3-4", 8, 7, "RUNNING", "INCOMPLETE,MISMATCH"),
        wire.RasSummaryRow(1, 2, 1, "4", 4, 8, "RUNNING", "OK"),
    )
    assert [(one.section, one.kind, one.communicator) for one in report.problems] == [
        ("errors", "INCOMPLETE", ""),
        ("errors", "INCOMPLETE", "27a079b828ff1a75"),
        ("warnings", "TIMEOUT", ""),
        ("warnings", "MISMATCH", "27a079b828ff1a75"),
    ]
    assert report.problems[1].ranks == (wire.RasNamedRank(7, "10.77.0.11", 90077),)
    assert report.problems[3].ranks == (
        wire.RasNamedRank(0, "10.77.0.10", 48307, "AllReduce", 6649),
        wire.RasNamedRank(2, "10.77.0.10", 48309, "AllReduce", 6649),
        wire.RasNamedRank(5, "10.77.0.11", 48311, "AllReduce", 17),
        wire.RasNamedRank(1, "", 0, "Broadcast", 0),
    )


def test_the_oldest_text_has_one_count_for_all_kinds() -> None:
    report = parse_text(OLDEST_TEXT.encode())
    assert report.nccl_version == "2.24.3"
    assert report.problems[-1].ranks == (
        wire.RasNamedRank(3, "10.77.0.10", 48310, status="INIT"),
        wire.RasNamedRank(2, "10.77.0.10", 48309, launched=6649),
    )


@pytest.mark.parametrize("text", ["", "hello\n", TEXT.partition("Warnings")[0]])
def test_text_that_ends_early_is_an_error(text: str) -> None:
    with pytest.raises(AnswerError):
        parse_text(text.encode())


def test_text_reaches_nobody_with_control_sequences() -> None:
    text = TEXT.replace("Missing communicator data from 1 rank\n", "Missing \x1b[2Jdata\x07\n")
    said = [line for one in parse_text(text.encode()).problems for line in one.lines]
    assert any("Missing  [2Jdata" in line for line in said)
    assert all(letter.isprintable() for line in said for letter in line)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_an_answer_or_an_error(data: bytes) -> None:
    for parse in (parse_json, parse_text):
        try:
            parse(data)
        except AnswerError:
            continue


def _changed(value: Any, at: list[int], instead: Any) -> Any:
    """`value` with one inner value replaced."""
    if isinstance(value, dict) and value and at:
        name = sorted(value)[at[0] % len(value)]
        return value | {name: _changed(value[name], at[1:], instead)}
    if isinstance(value, list) and value and at:
        place = at[0] % len(value)
        return [*value[:place], _changed(value[place], at[1:], instead), *value[place + 1 :]]
    return instead


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), _JUNK)
def test_an_answer_with_anything_in_it_can_be_sent_on_or_is_an_error(
    at: list[int], junk: Any
) -> None:
    ones = (communicator([rank(0, 10), rank(1, 11)], [missing(2, 12)]), communicator([rank(0, 10)]))
    changed = _changed(document(*ones), at, junk)
    try:
        report = parse_json(json.dumps(changed).encode())
    except AnswerError:
        return
    response = wire.RasResponse(1, "node", 1, 0, report=report)
    assert wire.decode_response(wire.encode(response)) == response
    for one in report.communicators:
        assert all(0 <= r.rank < one.size for r in one.ranks)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(TEXT)), st.integers(0, 60), st.text(max_size=30))
def test_text_with_anything_in_it_can_be_sent_on_or_is_an_error(
    at: int, length: int, junk: str
) -> None:
    try:
        report = parse_text((TEXT[:at] + junk + TEXT[at + length :]).encode())
    except AnswerError:
        return
    response = wire.RasResponse(1, "node", 1, 0, report=report)
    assert wire.decode_response(wire.encode(response)) == response
