"""Saved responses of torch's debug server: a page of all ranks, or JSON by rank."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.flightrecorder.writer import FakeRecorder, one_missing
from files.frames import blamed, notes
from frtop_tui.errors import Unreadable
from frtop_tui.files.flightrecorder.bundle import dumps_in_page, dumps_in_values
from frtop_tui.files.loader import open_paths


def values(one: FakeRecorder) -> Any:
    return json.loads(one.json())


def page(ranks: Sequence[FakeRecorder], silent: int | None = None, level: int = 2) -> str:
    """The page of the debug server: a heading and a response for each rank."""
    lines = ["\n<!doctype html>\n<head><title>FlightRecorder</title></head>\n<section>"]
    for one in ranks:
        address = f"http://node{one.rank // 2}:4{one.rank}/handler/fr_trace_json?"
        lines.append(f"        <h{level}>Rank {one.rank}: {address}</h{level}>\n")
        if one.rank == silent:
            lines.append("<p>Failed to fetch: status=503</p>\n<pre>ConnectionError</pre>")
        else:
            lines.append(f"            <pre>{json.dumps(values(one), indent=2)}</pre>\n")
    return "".join((*lines, "</section>"))


def test_a_page_with_the_dumps_of_all_ranks_is_read(tmp_path: Path) -> None:
    (tmp_path / "fr_trace_json.html").write_text(page(one_missing()))
    frame = open_paths([tmp_path])
    assert blamed(frame) == {2}
    assert {view.host for view in frame.ranks.values()} == {"node0", "node1"}


def test_a_rank_that_did_not_answer_is_named_and_not_blamed(tmp_path: Path) -> None:
    (tmp_path / "fr_trace.html").write_text(page(one_missing(), silent=2, level=3))
    frame = open_paths([tmp_path])
    assert blamed(frame) == set()
    assert "rank 2: it did not answer the debug server (status 503)" in notes(frame)


@pytest.mark.parametrize("response", [{"error": "off"}, {"entries": "bad"}])
@pytest.mark.parametrize("how", ["page", "by number"])
def test_an_invalid_response_of_one_rank_leaves_the_others(
    tmp_path: Path, how: str, response: object
) -> None:
    ranks = one_missing()
    text = page(ranks) if how == "page" else json.dumps(WRAPPED[how](ranks))
    for indent in (2, None):
        text = text.replace(json.dumps(values(ranks[1]), indent=indent), json.dumps(response))
    (tmp_path / "fr_trace.json").write_text(text)
    frame = open_paths([tmp_path])
    assert blamed(frame) == {2}
    assert frame.recorded is not None
    assert how != "page" or any("(rank 1)" in note for note in frame.recorded.notes)


def test_a_page_with_escaped_characters_is_read(tmp_path: Path) -> None:
    text = page(one_missing())
    begin, end = text.index("<pre>") + 5, text.index("</pre>")
    text = text[:begin] + html.escape(text[begin:end]) + text[end:]
    (tmp_path / "x").write_text(text)
    assert blamed(open_paths([tmp_path / "x"])) == {2}


WRAPPED: dict[str, Callable[[list[FakeRecorder]], Any]] = {
    "by number": lambda ranks: {str(one.rank): values(one) for one in ranks},
    "by name": lambda ranks: {f"rank{one.rank}.json": values(one) for one in ranks},
    "as texts": lambda ranks: {f"rank_{one.rank}": one.json().decode() for one in ranks},
    "as a list": lambda ranks: [values(one) for one in ranks],
    "by a field": lambda ranks: {
        str(9 - one.rank): values(one) | {"rank": one.rank} for one in ranks
    },
}


@pytest.mark.parametrize("how", WRAPPED)
def test_json_of_all_ranks_in_one_file(tmp_path: Path, how: str) -> None:
    (tmp_path / "fr_trace.json").write_text(json.dumps(WRAPPED[how](one_missing())))
    frame = open_paths([tmp_path])
    assert blamed(frame) == {2}
    assert sorted(frame.ranks) == [0, 1, 2, 3]


@pytest.mark.parametrize("text", ["<html></html>", "<h2>Rank 0: x</h2><pre>{", '{"0": {"a": 1}}'])
def test_pages_without_dumps_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "fr_trace_1.json").write_text(text)
    with pytest.raises(Unreadable, match="fr_trace_1"):
        open_paths([tmp_path])


PAGE = page(one_missing()[:2]).encode()


@given(st.data())
def test_damaged_pages_leave_the_other_files(tmp_path: Path, data: st.DataObject) -> None:
    broken = bytearray(PAGE)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(broken) - 1))
        broken[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=6))
    for dump in dumps_in_page(bytes(broken)):
        assert dump.rank is not None
    (tmp_path / "fr_trace.html").write_bytes(bytes(broken))
    (tmp_path / "nccl_trace_rank_3").write_bytes(one_missing()[3].pickle())
    assert 3 in open_paths([tmp_path]).ranks


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=6) | st.sampled_from(["{", '{"entries": []}']),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["0", "rank1", "entries", "pg_config", "rank", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(ANYTHING)
def test_any_json_gives_dumps(values: Any) -> None:
    assert dumps_in_values(values)
