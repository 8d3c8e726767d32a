"""The table of what torch's allocator did: ranks that are alike in one row, the others marked."""

from __future__ import annotations

import pytest

from frtop_tui.features.profile.allocation_words import allocation_lines, allocation_rows
from frtop_tui.features.profile.model import RankAllocations
from frtop_tui.job.units import byte_size

G = 1 << 30


def gpu(rank: int, peak: int, *, index: int = 0, failed: int = 0) -> RankAllocations:
    return RankAllocations(rank, f"cuda:{index}", 10 * G, 10 * G, peak, 20 * G, failed)


HEAD = "torch's allocator ranks at start at end peak reserved"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param(
            [gpu(0, 15 * G), gpu(1, 18 * G), gpu(2, 15 * G + 5), gpu(3, 15 * G)],
            [HEAD,
             "cuda:0 0,2-3 10.7 GB 10.7 GB 16.1 GB 21.5 GB",
             "cuda:0 1 10.7 GB 10.7 GB 19.3 GB 21.5 GB differs"],
            id="one differs",
        ),
        pytest.param(
            [gpu(rank, 15 * G, index=rank) for rank in range(8)],
            [HEAD, "cuda 0-7 10.7 GB 10.7 GB 16.1 GB 21.5 GB"],
            id="a GPU each",
        ),
        pytest.param(
            [gpu(0, 15 * G), gpu(1, 18 * G)],
            [HEAD,
             "cuda:0 1 10.7 GB 10.7 GB 19.3 GB 21.5 GB",
             "cuda:0 0 10.7 GB 10.7 GB 16.1 GB 21.5 GB"],
            id="of two nobody is usual",
        ),
        pytest.param(
            [gpu(0, 15 * G, failed=2), gpu(1, 15 * G, failed=1)],
            [HEAD, "cuda:0 0-1 10.7 GB 10.7 GB 16.1 GB 21.5 GB",
             "rank 0: out of memory on cuda:0, 2 times", "rank 1: out of memory on cuda:0, once"],
            id="no memory was left",
        ),
        pytest.param(
            [RankAllocations(rank, "CPU", 0, -4096 + rank, 3 << 20) for rank in range(2)],
            [HEAD, "CPU 0-1 - -4.09 KB +3.15 MB -",
             "CPU: only blocks that were allocated while the profile ran"],
            id="of the CPU changes only",
        ),
        pytest.param(
            [gpu(rank, (10 + 3 * rank) * G) for rank in range(10)],
            [HEAD, *(f"cuda:0 {rank} 10.7 GB 10.7 GB {byte_size(10 + 3 * rank << 30)} 21.5 GB"
                     for rank in range(9, 1, -1)), "and ranks 0-1"],
            id="all differ",
        ),
    ],
)  # fmt: skip
def test_rows(found: list[RankAllocations], expected: list[str]) -> None:
    lines = allocation_lines(found)
    assert [" ".join(line.split()) for line in lines] == expected
    assert all(len(line) <= 80 for line in lines)


def test_what_is_not_known_of_the_cpu_is_null() -> None:
    (cpu,) = allocation_rows([RankAllocations(0, "CPU", 0, 5, 9)])
    assert cpu == {"rank": 0, "device": "CPU", "start": None, "end": 5, "peak": 9,
                   "reserved": None, "out_of_memory": 0}  # fmt: skip
