"""Saved answers of NCCL's RAS: what is said of ranks, and that nothing is concluded from it.

The answers are made from the public description of RAS; none comes from NCCL.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from connect.fakes import frame_of, rank_view
from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files import nccl_ras
from frtop_tui.files.loader import open_paths
from frtop_tui.job.groups import group_views
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.plain import text

A, B = "10.0.0.1", "10.0.0.2"
WORLD = wire.Group(1, "world", "", "nccl", "0-3")
TEXT = """\
NCCL version 2.27.3+cuda12.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

Errors
======

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 7 -- GPU 3 managed by process 90077 on node 10.77.0.11

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  4 ranks have launched up to operation 6650

"""


def on(address: str, rank: int, pid: int, count: int = 10, **status: Any) -> dict[str, Any]:
    counts = {"Broadcast": 0, "AllReduce": count}
    return {
        "rank": rank,
        "host": address,
        "pid": pid,
        "status": status,
        "collective_counts": counts,
    }


def communicator(
    ranks: list[Any], missing: tuple[Any, ...] = (), name: str = "0xae94423cfbb2ef4a"
) -> dict[str, Any]:
    size = len(ranks) + len(missing)
    return {"hash": name, "size": size, "ranks": ranks, "missing_ranks": list(missing)}


ALL = [on(A, 0, 100), on(A, 1, 101), on(B, 2, 102), on(B, 3, 103, 9)]
GONE = {"rank": 3, "host": B, "pid": 103, "status": {"unresponsive": True}}


def answer(*communicators: Any) -> dict[str, Any]:
    return {
        "nccl_version": "2.28.9",
        "timestamp": "2026-01-19 13:06:53",
        "communicators_count": len(communicators),
        "communicators": list(communicators),
        "ras": {"collection_time_sec": 2.05},
    }


def view(number: int, host: str, pid: int = 0, **fields: Any) -> Any:
    """A rank; by default its pid is 100 and its number."""
    made = rank_view(number, host, groups={1: WORLD}, **fields)
    return replace(made, identity=replace(made.identity, pid=pid or 100 + number))


def frame(*views: Any) -> Frame:
    """Four ranks on two hosts by default."""
    ranks = views or tuple(view(n, "a" if n < 2 else "b") for n in range(4))
    return replace(frame_of(*ranks), groups=group_views(ranks))


def said(tmp_path: Path, known: Frame, *communicators: Any) -> str:
    file = tmp_path / "ncclras.json"
    file.write_text(json.dumps(answer(*communicators), indent=2))
    return "\n".join(nccl_ras.said_of(nccl_ras.read(file), known))


@pytest.mark.parametrize(
    ("communicators", "words"),
    [
        ([communicator(ALL)], "world: AllReduce launched 10 times, by fewer: rank 3 (process 103"),
        ([communicator(ALL[:3], (GONE,))], "rank 3 (process 103 on 10.0.0.2) is unresponsive"),
        ([communicator([*ALL[:3], on(B, 3, 103, abort_flag=True)])], "is aborted"),
        ([communicator(ALL[:3]), communicator(ALL, name="0x2")], "communicator 0x2, 4 ranks, w"),
        ([communicator([on("10.0.0.9", 0, 7), on(A, 1, 101, 9)])],
         "AllReduce launched 10 times, by fewer: rank 1 (process 101 on 10.0.0.1) 9"),
        ([communicator([on(A, 0, 100), on("10.0.0.9", 1, 7, 9)])],
         "by fewer: rank 1 of it (process 7 on 10.0.0.9) 9"),
        ([communicator(ALL[:3])], "no rank of 1 communicator is missing or has launched less"),
        ([communicator([on(A, 0, 100), on(A, 0, 101)])], "1 communicator left out: contradictory"),
        ([], "it lists no problem, which does not mean that all is well"),
    ],
)  # fmt: skip
def test_what_an_answer_says_of_ranks(tmp_path: Path, communicators: Any, words: str) -> None:
    assert words in said(tmp_path, frame(), *communicators)


def test_pids_that_repeat_between_hosts_are_told_apart_by_address_or_not_at_all(
    tmp_path: Path,
) -> None:
    snapshot = wire.Snapshot(1, 1, addresses=(A,))
    twins = [view(0, "a", 77, snapshot=snapshot), view(1, "b", 77)]
    one = communicator([on(A, 0, 77), on(B, 1, 77, 9)])
    assert "rank 1 of it (process 77" in said(tmp_path, frame(*twins), one)
    twins[1] = replace(twins[1], snapshot=wire.Snapshot(1, 1, addresses=(B,)))
    assert "rank 1 (process 77" in said(tmp_path, frame(*twins), one)


def test_an_answer_alone_is_shown_and_concludes_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.ras.json").write_text(json.dumps(answer(communicator(ALL[:3], (GONE,)))))
    opened = open_paths([tmp_path])
    assert (opened.health, opened.verdicts, exit_status(opened)) == ("undecided", (), 4)
    shown = "\n".join(text(opened))
    assert "rank 3 of it (process 103 on 10.0.0.2) is unresponsive" in shown
    assert "answers of NCCL's RAS alone conclude nothing" in shown


def test_beside_stacks_it_is_a_note_and_changes_no_verdict(tmp_path: Path) -> None:
    stacks = tmp_path / "rank_0.pyspy.json"
    place = {"name": "main", "filename": "train.py", "line": 7}
    thread = {"thread_id": 1, "active": True, "owns_gil": False, "pid": 100, "frames": [place]}
    stacks.write_text(json.dumps([thread]))
    before = open_paths([stacks])
    (tmp_path / "ncclras.txt").write_text(TEXT)
    after = open_paths([tmp_path])
    assert (after.health, after.verdicts) == (before.health, before.verdicts)
    assert after.recorded is not None
    notes = "\n".join(after.recorded.notes)
    assert "NCCL's RAS 2.27.3" in notes
    assert "INCOMPLETE in communicator 27a079b828ff1a75: Missing communicator data" in notes
    assert "MISMATCH in communicator 27a079b828ff1a75: Communicator ranks have different" in notes


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (json.dumps(answer(communicator(ALL)))[:-60], "is damaged, or not an answer"),
        (TEXT.partition("Warnings")[0], "ends before the last section"),
    ],
)
def test_half_of_an_answer_is_none(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "ncclras.txt"
    file.write_text(content)
    with pytest.raises(Unreadable, match=words):
        open_paths([file])


def test_other_json_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "ncclras.json").write_text('{"version": 1}')
    with pytest.raises(Unreadable, match="is not a Flight Recorder dump"):
        open_paths([tmp_path / "ncclras.json"])


_GOOD = json.dumps(answer(communicator(ALL[:3], (GONE,)))), TEXT


@given(st.sampled_from(_GOOD), st.floats(0, 1), st.integers(0, 60), st.text(max_size=30))
def test_any_content_is_an_answer_or_an_error(
    tmp_path: Path, good: str, at: float, length: int, junk: str
) -> None:
    place = int(at * len(good))
    file = tmp_path / "ncclras"
    file.write_bytes((good[:place] + junk + good[place + length :]).encode("utf-8", "replace"))
    try:
        opened = open_paths([file])
    except Unreadable:
        return
    assert opened.verdicts == ()
    assert all(line.isprintable() for line in text(opened))
