"""What is made of an answer: the risk that applies, groups, who has launched less, what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from connect.fakes import S, frame_of, rank_view
from frtop_probe import wire
from frtop_probe.ras.json_answer import parse_json
from frtop_probe.ras.text_answer import parse_text
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.job.groups import group_views
from frtop_tui.ras.document import ras_document
from frtop_tui.ras.faults import FAULTS, faults_of, parse_version
from frtop_tui.ras.launches import counts_by_kind, moved, status_words
from frtop_tui.ras.membership import Membership, memberships
from frtop_tui.ras.risk import making_elsewhere, risk_lines
from frtop_tui.ras.text import answer_lines
from ras.answers import OLDEST_TEXT, TEXT, as_json, communicator, missing, rank
from wire.test_wire import strategy

A, B = "10.0.0.1", "10.0.0.2"


def group(number: int, ranks: str, backend: str = "nccl", name: str = "") -> wire.Group:
    return wire.Group(number, name or str(number), "", backend, ranks)


WORLD = group(1, "0-3", name="world")


def view(number: int, host: str, pid: int = 0, **fields: Any) -> Any:
    """A rank; by default its pid is 100 and its number."""
    made = rank_view(number, host, **{"groups": {1: WORLD}} | fields)
    return replace(made, identity=replace(made.identity, pid=pid or 100 + number))


def frame(*views: Any) -> Frame:
    """Four ranks on two hosts by default."""
    ranks = views or tuple(view(n, "a" if n < 2 else "b") for n in range(4))
    return replace(frame_of(*ranks), groups=group_views(ranks))


def answer(*communicators: Any, host: str = "a", at_s: int = 1, **fields: Any) -> wire.RasResponse:
    report = parse_json(as_json(*communicators))
    return wire.RasResponse(1, host, 1, at_s * S, asked=True, report=report, **fields)


def on(address: str, number: int, pid: int, count: int = 10) -> Any:
    return rank(number, pid, count) | {"host": address}


ALL = [on(A, 0, 100), on(A, 1, 101), on(B, 2, 102), on(B, 3, 103, 9)]


@pytest.mark.parametrize(
    ("version", "issues"),
    [
        ("2.26.2", [1669, 1718, 1762, 1996]),
        ("2.27.3", [1762, 1996, 2346]),
        ("2.28.9", [1762, 1996, 2346]),
        ("2.29.2", [1996, 2346]),
        ("2.30.7", [1996, 2346]),
        ("2.25.1", [1669, 1718, 1996]),
        ("", [fault.issue for fault in FAULTS]),
        ("nonsense", [fault.issue for fault in FAULTS]),
    ],
)
def test_only_faults_of_this_version_are_named(version: str, issues: list[int]) -> None:
    assert [fault.issue for fault in faults_of(version)] == issues


@given(st.text(max_size=20))
def test_any_text_is_a_version_or_none(text: str) -> None:
    assert isinstance(parse_version(text), tuple)


def test_the_risk_names_who_is_asked_which_version_and_what_was_not_checked() -> None:
    look = wire.RasResponse(
        1, "a", 1, S, version="2.28.9", version_source="the data of its file",
        address="[::1]:28028", checked=("stacks of 2 ranks",), unchecked=("ranks on other hosts",),
    )  # fmt: skip
    said = "\n".join(risk_lines(view(0, "a"), look))
    for words in (
        "RISK: asking NCCL's RAS has ended jobs",
        "job        train.py (node0:29500)",
        "rank 0 (process 100 on a), at [::1]:28028",
        "once, from this host only",
        "NCCL 2.28.9 (the data of its file)",
        "nccl#1762",
        "fixed in 2.29.2",
        "checked    stacks of 2 ranks",
        "unchecked  ranks on other hosts",
        "has not met a real NCCL",
    ):
        assert words in said
    assert "nccl#1669" not in said
    assert "twice" in "\n".join(risk_lines(view(0, "a"), look, twice=True))
    unknown = "\n".join(risk_lines(view(0, "a"), wire.RasResponse(1, "a", 1, S)))
    assert "NCCL of an unknown version" in unknown
    assert "any of these, as the version is not known" in unknown


def test_a_rank_of_any_host_that_makes_a_communicator_is_in_the_way() -> None:
    assert making_elsewhere(frame()) == ""
    making = wire.Op(1, 0, 1, wire.Signature("new_group"), None, 1, pseudo=True)
    one = view(3, "b", pending=(making,))
    assert "rank 3 on b may be making a communicator: it is in new_group" in making_elsewhere(
        frame(view(0, "a"), one)
    )
    inside = wire.TraceFrame("new_group", "/x/torch/distributed/distributed_c10d.py", 1)
    stack = wire.ThreadStack(1, 1, "MainThread", True, False, (inside,))
    seen = wire.Snapshot(4, 1, dumps=(wire.StackDump(103, (stack,)),))
    assert "new_group" in making_elsewhere(frame(view(3, "b", snapshot=seen)))
    starting = frame(view(0, "a"), view(2, "b", groups={}, state="starting"))
    assert "rank 2 on b has no process group yet" in making_elsewhere(starting)
    gone = frame(view(0, "a"), view(2, "b", groups={}, state="dead", pending=(making,)))
    assert making_elsewhere(gone) == ""


def test_a_communicator_is_the_group_with_its_members_in_rank_order() -> None:
    assert memberships(frame(), answer(communicator(ALL))) == (
        Membership((0, 1, 2, 3), ("world",)),
    )


def test_ranks_in_another_order_are_no_group() -> None:
    swapped = [on(A, 1, 100), on(A, 0, 101), *ALL[2:]]
    assert memberships(frame(), answer(communicator(swapped))) == (Membership((1, 0, 2, 3), ()),)


def test_equal_memberships_stay_ambiguous() -> None:
    groups = {1: WORLD, 2: group(2, "0-3", name="dp"), 3: group(3, "0-3", "gloo", "cpu")}
    views = [view(n, "a" if n < 2 else "b", groups=groups) for n in range(4)]
    response = answer(communicator(ALL), communicator(ALL, name="0x2"))
    found = memberships(frame(*views), response)
    assert found == (Membership((0, 1, 2, 3), ("dp", "world"), 2),) * 2
    said = answer_lines(frame(*views), views[0], response)
    wanted = "ambiguous, dp or world: equal members; 2 communicators have these members"
    assert any(wanted in line for line in said)


def test_pids_that_repeat_between_hosts_are_told_apart_by_address_or_not_at_all() -> None:
    snapshot = wire.Snapshot(1, 1, addresses=(A,))
    twins = [view(0, "a", 77, snapshot=snapshot), view(1, "b", 77)]
    response = answer(communicator([on(A, 0, 77), on(B, 1, 77)]))
    assert memberships(frame(*twins), response)[0].ranks == (0, None)
    twins[1] = replace(twins[1], snapshot=wire.Snapshot(1, 1, addresses=(B,)))
    assert memberships(frame(*twins), response)[0].ranks == (0, 1)


def test_pids_inside_a_container_are_those_that_the_agent_names() -> None:
    response = answer(communicator([on(A, 0, 7)]), host="a", pids=((1, 7),))
    inside = frame(view(0, "a", groups={1: group(1, "0")}))
    assert memberships(inside, response)[0].ranks == (0,)


def test_missing_members_leave_the_group_open_only_as_far_as_they_are_unknown() -> None:
    absent = missing(3, -1) | {"host": "unknown"}
    found = memberships(frame(), answer(communicator(ALL[:3], [absent])))
    assert found == (Membership((0, 1, 2, None), ("world",)),)


def test_counts_say_who_has_launched_fewer() -> None:
    (one,) = answer(communicator(ALL)).report.communicators  # type: ignore[union-attr]
    (row,) = counts_by_kind(one)
    assert (row.kind, row.most, row.fewer) == ("AllReduce", 10, ((3, 9),))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ()),
        ({"init_state": 7}, ("its communicator is being made",)),
        ({"init_state": 3}, ("its communicator failed to be made (error 3)",)),
        ({"async_error": 7}, ()),
        ({"async_error": 6}, ("asynchronous error 6",)),
        ({"abort_flag": True, "destroy_flag": True}, ("aborted", "being destroyed")),
    ],
)
def test_words_for_a_rank_that_does_not_simply_run(
    fields: dict[str, Any], words: tuple[str, ...]
) -> None:
    assert status_words(wire.RasRank(0, A, 1, **fields)) == words


def test_an_answer_says_who_and_by_how_much_and_what_it_does_not_cover() -> None:
    response = answer(communicator(ALL[1:], [missing(0, 100, dead=True) | {"host": A}]))
    said = "\n".join(answer_lines(frame(), view(0, "a"), response))
    for words in (
        "4 ranks: process group world",
        "AllReduce    10  rank 3: 9 (1 fewer)",
        "rank 0 (process 100 on 10.0.0.1): considered dead by RAS, for good",
        "whether any is complete is not known",
        "replays of CUDA graphs are not counted",
        "no evidence of frtop's verdict",
    ):
        assert words in said


def test_a_second_answer_says_what_has_not_moved() -> None:
    first, second = (
        answer(communicator(ALL)),
        answer(communicator([on(A, 0, 100, 11), *ALL[1:]]), at_s=12),
    )
    assert first.report is not None
    assert second.report is not None
    assert list(moved(first.report, second.report).values()) == [frozenset({0})]
    said = "\n".join(answer_lines(frame(), view(0, "a"), second, first))
    assert "compared with its answer 11 s before" in said
    assert "not moved: ranks 1-3" in said
    assert "  moved: rank 0" in said
    document = ras_document(frame(), view(0, "a"), second, first)
    assert document["communicators"][0]["not_moved"] == [1, 2, 3]


@pytest.mark.parametrize("text", [TEXT, OLDEST_TEXT])
def test_text_of_an_older_nccl_is_shown_in_its_own_words(text: str) -> None:
    response = wire.RasResponse(1, "a", 1, S, asked=True, report=parse_text(text.encode()))
    said = "\n".join(answer_lines(frame(), view(0, "a"), response))
    assert "1 communicator of 8 ranks on 2 nodes: running, incomplete, mismatch" in said
    assert "ranks have launched up to operation 6650" in said
    assert "it lists few ranks, by their numbers in the communicator" in said
    json.dumps(ras_document(frame(), view(0, "a"), response))


def test_an_answer_is_in_a_capture(tmp_path: Path) -> None:
    response = answer(communicator(ALL))
    ranks = frame(view(0, "a", ras=response), view(1, "a"))
    capture.write(tmp_path / "x.cap", ranks, {}, ())
    opened = capture.read(tmp_path / "x.cap").ranks[0]
    assert opened.ras == response
    assert answer_lines(ranks, opened, response) == answer_lines(ranks, ranks.ranks[0], response)


def test_a_refusal_says_whether_ras_was_asked() -> None:
    refused = wire.RasResponse(1, "a", 1, S, error="making", help="wait; then ask again")
    assert answer_lines(frame(), view(0, "a"), refused) == [
        "RAS not asked: wait",
        "  next  then ask again",
    ]
    late = replace(refused, asked=True, error="deadline")
    assert answer_lines(frame(), view(0, "a"), late)[0] == "RAS asked, and no answer: wait"


@settings(max_examples=60, deadline=None)
@given(strategy(wire.RasResponse), strategy(wire.RasResponse))
def test_whatever_an_agent_sends_can_be_shown(
    response: wire.RasResponse, earlier: wire.RasResponse
) -> None:
    ranks = frame()
    for line in (
        *answer_lines(ranks, ranks.ranks[0], response, earlier),
        *answer_lines(ranks, ranks.ranks[0], response),
    ):
        assert line.isprintable()
    json.dumps(ras_document(ranks, ranks.ranks[0], response, earlier))
    risk_lines(ranks.ranks[0], response)
