"""The rank of a dump file, by its name and its groups."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from frtop_tui.errors import UsageError
from frtop_tui.files.flightrecorder.file_names import (
    Claim,
    FileName,
    RankPattern,
    assign_ranks,
    is_dump_name,
    parse_name,
)


@pytest.mark.parametrize(
    ("name", "number", "host"),
    [
        ("nccl_trace_rank_0", 0, ""),
        ("nccl_trace_rank_1023", 1023, ""),
        ("comm_lib_trace_rank_12", 12, ""),
        ("_dump_7", 7, ""),
        ("nccl_trace_rank_3.json", 3, ""),
        ("rank_4.pkl", 4, ""),
        ("rank4.json", 4, ""),
        ("gloo_trace_rank_4", 4, ""),
        ("nccl_trace_rank_container-node02_5", 5, "container-node02"),
        ("gpu-17_dump_3", 3, "gpu-17"),
        ("rank3_trace", 3, ""),
        ("rank_0_host-a", 0, "host-a"),
        ("nccl_trace_rank_3_20250922_224717", 3, ""),
        ("nccl_trace_rank_3.2025-09-22T22:47:17", 3, ""),
        ("node4_dump_3-1758581237", 3, "node4"),
        ("rank_3.pyspy.json", 3, ""),
        ("node2.rank_3.pyspy.json", 3, "node2"),
        ("fr_trace_json.rank4", 4, ""),
        ("rank_11_local_rank_3", 11, ""),
        ("local_rank_3.global_rank_11", 11, "global"),
        ("node1_local_rank_3", 3, "node1_local"),
        ("trace_local_rank_3", 3, "local"),
    ],
)
def test_a_file_name_gives_number_and_host(name: str, number: int, host: str) -> None:
    assert parse_name(Path(name)) == FileName(number, host)
    assert is_dump_name(Path(name)) or name in ("rank3_trace", "rank_0_host-a") or "pyspy" in name


@pytest.mark.parametrize(
    ("pattern", "name", "rank"),
    [
        ("node*{rank}", "node1_11", 11),
        ("node*{rank}", "node12", 12),
        ("host*_gpu{rank}", "host12_gpu3", 3),
        ("*{rank}.json", "trace_12.json", 12),
        ("rank{rank}*", "rank12_of_16", 12),
        ("{rank}*", "12345678", None),
        ("*-*-{rank}", "a1-b22-33", 33),
    ],
)
def test_a_star_never_takes_digits_of_the_rank(pattern: str, name: str, rank: int | None) -> None:
    assert RankPattern(pattern).number(Path(name)) == rank


@given(st.text(max_size=30))
def test_any_name_and_any_pattern_are_parsed(text: str) -> None:
    path = Path("/x") / (text.replace("/", "").replace("\0", "") or "x")
    assert (parse_name(path).number or 0) >= 0
    with suppress(UsageError):
        RankPattern(text).number(path)
    assert RankPattern(f"{text.replace('{rank}', '')}{{rank}}").number(Path("/x/y")) is None


@pytest.mark.parametrize(
    "name", ["config.json", "model-00001-of-00002.safetensors", "README", "x.py"]
)
def test_other_names_are_no_dumps(name: str) -> None:
    assert not is_dump_name(Path(name))


def claims(*files: tuple[str, set[int] | None]) -> list[Claim]:
    return [
        Claim(Path(name), parse_name(Path(name)), frozenset(ranks) if ranks else None)
        for name, ranks in files
    ]


def test_a_number_outside_the_groups_of_the_dump_is_no_rank() -> None:
    ranks, notes = assign_ranks(claims(("trace_rank_0", {8}), ("trace_rank_1", {8, 9})))
    assert ranks == [8, None]
    assert "trace_rank_1" in notes[0]
    assert "nccl_trace_rank_0" in notes[0]  # how to name it


@pytest.mark.parametrize("page_rank", [None, 1_000_000])
def test_a_number_beyond_the_largest_job_is_no_rank(page_rank: int | None) -> None:
    from_page = [replace(one, page_rank=page_rank) for one in claims(("trace_rank_1000000", None))]
    ranks, notes = assign_ranks([*from_page, *claims(("trace_rank_999999", None))])
    assert ranks == [None, 999_999]
    assert "trace_rank_1000000" in notes[0]


def test_two_dumps_of_many_hosts_are_merged_quickly() -> None:
    """Each number occurs on every host; comparing all with all took minutes."""
    hosts, local = 800, 8
    found = [
        Claim(
            Path(f"/{folder}/node{host}_rank_{number}"),
            FileName(number, f"node{host}"),
            None,
            frozenset((host * local + number, op) for op in range(4)),
        )
        for folder in range(2)
        for host in range(hosts)
        for number in range(local)
    ]
    begin = time.process_time()
    ranks, notes = assign_ranks(found)
    assert time.process_time() - begin < 15
    assert set(ranks) == {None}
    assert notes


def test_the_same_number_on_two_hosts_is_no_rank() -> None:
    ranks, _ = assign_ranks(claims(("rank_a_0", None), ("rank_b_0", None), ("rank_b_1", None)))
    assert ranks == [None, None, 1]


def test_two_recorders_in_one_folder_are_of_one_rank() -> None:
    ranks, notes = assign_ranks(claims(("nccl_trace_rank_0", None), ("gloo_trace_rank_0", None)))
    assert (ranks, notes) == ([0, 0], [])
