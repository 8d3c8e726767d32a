"""What launchers, schedulers and torch put before a line is taken off, and says who wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frtop_tui.files.logs.prefixes import head_of, wall_ns_of

TEXT = "[Rank 3] Watchdog caught it"
AT = wall_ns_of(("2026", "11", "29", "10", "11", "12", "5"))
_GLOG = "[E1129 10:11:12.500000000 ProcessGroupNCCL.cpp:632] "
_PREFIXES = (
    # before the line, rank, process, time
    ("", None, "", 0),
    (f"[rank13]:{_GLOG}", 13, "", AT),
    ("[rank13]:[E419 10:11:12.5 ProcessGroupNCCL.cpp:632] ", 13, "",
     wall_ns_of(("2026", "4", "19", "10", "11", "12", "5"))),
    ("[rank13]:[E ProcessGroupNCCL.cpp:563] ", 13, "", 0),
    ("[E ProcessGroupNCCL.cpp:475] ", None, "", 0),
    ("E1129 10:11:12.5 12345 ProcessGroupNCCL.cpp:616] ", None, "", AT),
    (f"12: [default4]:[rank12]:{_GLOG}", 12, "task 12 local rank 4 ", AT),
    (f"[rank0]:[rank0]:{_GLOG}", 0, "", AT),
    ("[1,3]<stderr>:", 3, "", 0),
    ("[prterun-host-123@1,3]<stdout>: ", 3, "", 0),
    ("(RayWorkerWrapper pid=123, ip=10.0.0.3) ", None, "process pid=123, ip=10.0.0.3 ", 0),
    ("(VllmWorker rank=3 pid=123) ", None, "process pid=123 ", 0),
    (f"[pod/train-0/main] 2026-11-29T10:11:12.500000000Z [rank2]:{_GLOG}", 2,
     "pod train-0/main ", AT),
    ("2026-11-29T10:11:12.5Z stderr F ", None, "", AT),
    ("worker-1  | ", None, "service worker-1 ", 0),
    ("[rank: 3] ", 3, "", 0),
    ("W1129 10:11:12.500000 4200 site-packages/torch/distributed/api.py:900] ", None, "", AT),
    ("[2026-11-29 10:11:12,500] ", None, "", AT),
    ("[2026-11-29 10:11:12.5 TP3] ", None, "process TP3 ", AT),
    ("[2026-11-29 10:11:12.5 DP1 TP3 EP3] ", None, "process DP1 TP3 EP3 ", AT),
    ("(Worker_TP3 pid=9) ERROR 11-29 10:11:12.5 [core.py:7] ", None, "process pid=9 ", AT),
    (f" 35%|###5      | 35/100 [00:12<00:23, 2.8it/s][rank3]:{_GLOG}", 3, "", AT),
)  # fmt: skip


@pytest.mark.parametrize(("before", "rank", "process", "at"), _PREFIXES)
def test_prefixes(before: str, rank: int | None, process: str, at: int) -> None:
    head = head_of(before + TEXT, 2026)
    assert (head.rank, head.process, head.wall_ns, head.text) == (rank, process, at, TEXT)


def test_only_torchs_hook_has_a_blank_after_the_rank() -> None:
    assert head_of("[default1]:[rank3]: Traceback (most recent call last):", 2026).hooked
    assert not head_of("[rank3]:Traceback (most recent call last):", 2026).hooked
    assert not head_of(f"[rank3]:{_GLOG}Traceback", 2026).hooked
    assert head_of('[rank3]:   File "a.py"', 2026).text == '  File "a.py"'


@pytest.mark.parametrize(
    ("before", "claim"),
    [
        ("(Worker_TP3 pid=9) ", 3),
        ("(Worker_TP3_EP3 pid=9) ", 3),
        ("(VllmWorker rank=3 pid=9) ", 3),
        ("[2026-11-29 10:11:12 TP3 EP3] ", 3),
        ("(Worker_DP1_TP3 pid=9) ", -1),  # a replica has ranks of its own
        ("(Worker_PP1_TP3 pid=9) ", -1),
        ("[2026-11-29 10:11:12 PP1 TP3] ", -1),
        ("(EngineCore_DP0 pid=9) ", -1),
    ],
)
def test_names_of_servers_processes_have_ranks(before: str, claim: int) -> None:
    assert head_of(before + TEXT, 2026).claim == claim


def test_what_indents_a_line_stays() -> None:
    assert (
        head_of("2026-11-29T10:11:12.5Z     step (train.py:3)", 2026).text
        == "    step (train.py:3)"
    )


@pytest.mark.parametrize("time", ["1331 10:11:12.5", "1129 25:11:12.5"])
def test_a_time_that_does_not_exist_is_none(time: str) -> None:
    assert head_of(f"[E{time} a.cpp:1] x", 2026).wall_ns == 0


@given(st.lists(st.sampled_from([one[0] for one in _PREFIXES]), max_size=12), st.text())
@settings(max_examples=300, deadline=None)
def test_any_prefixes_are_taken_apart_without_losing_text(before: list[str], text: str) -> None:
    line = "".join(before) + text
    head = head_of(line, 2026)
    assert line.endswith(head.text)
    assert head.rank is None or head.rank >= 0
