"""Settings of ranks: common ones once, different ones by rank."""

from __future__ import annotations

import pytest

from frtop_probe import wire
from frtop_tui.job.environment import differing, environment
from frtop_tui.job.model import ObservedRank

JOB = wire.Job("node0", 29500, 4)


def rank(number: int, torch: str = "2.13.0", **settings: str) -> ObservedRank:
    identity = wire.Identity(
        number + 1, 1, number, number, JOB, torch=torch, python="3.11.7",
        settings=tuple(settings.items()),
    )  # fmt: skip
    return ObservedRank(number, "node0", number, identity, "moving", 0, 0, 0)


def test_a_setting_of_all_ranks_is_common() -> None:
    found = environment(rank(n, NCCL_ALGO="Ring") for n in range(4))
    assert found.common == {"NCCL_ALGO": "Ring", "torch": "2.13.0", "python": "3.11.7"}
    assert not found.different
    assert differing(found) == []


def test_of_a_rank_without_a_recorder_no_setting_is_known() -> None:
    identity = wire.Identity(9, 1, 1, 1, JOB, prepared=False)
    outside = ObservedRank(1, "node0", 1, identity, "moving", 0, 0, 0)
    assert not environment([rank(0, NCCL_ALGO="Ring"), outside]).different


@pytest.mark.parametrize(
    ("views", "sentence"),
    [
        (
            [*(rank(n, NCCL_ALGO="Ring") for n in range(3)), rank(3, NCCL_ALGO="Tree")],
            "NCCL_ALGO differs: Ring on ranks 0-2, Tree on rank 3",
        ),
        (
            [rank(0), *(rank(n, NCCL_PROTO="LL") for n in range(1, 4))],
            "NCCL_PROTO differs: LL on ranks 1-3, not set on rank 0",
        ),
        (
            # Long values are shown from where they differ.
            [
                rank(n, NCCL_IB_HCA=",".join(f"mlx5_{port}" for port in range(16 - n)))
                for n in range(2)
            ],
            (
                "NCCL_IB_HCA differs: …5_12,mlx5_13,mlx5_14,mlx5_15 on rank 0,"
                " …5_12,mlx5_13,mlx5_14 on rank 1"
            ),
        ),
        ([rank(0), rank(1, torch="2.15.0")], "torch differs: 2.13.0 on rank 0, 2.15.0 on rank 1"),
    ],
)
def test_a_setting_that_differs_is_listed_by_rank(views: list[ObservedRank], sentence: str) -> None:
    assert differing(environment(views)) == [sentence]


@pytest.mark.parametrize(
    "views",
    [
        [rank(n, CUDA_VISIBLE_DEVICES=str(n)) for n in range(4)],  # the launcher's own doing
        [rank(n, SLURM_PROCID=str(n)) for n in range(4)],
        [rank(0), rank(1, torch="")],  # on its way into torch
        [],
    ],
)
def test_settings_that_must_differ_are_not_listed(views: list[ObservedRank]) -> None:
    assert differing(environment(views)) == []
