"""Statistics of tensors, for every dtype and any number of pieces."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from frtop_probe.recorder.tensors.tensor_stats import MAX_VALUES, TensorStats

pytestmark = pytest.mark.torch

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("dtype", "parts", "statistics", "first"),
    [
        ("complex64", [3.0, 4, NAN, 0, INF, 1, 0, 0], (0, 5, 2.5, 5), "3+4j"),
        ("complex32", torch.tensor([3, -4]).half(), (5, 5, 5, 5), "3-4j"),
        ("bool", [True, False], (0, 1, 0.5, 1), "True"),
        ("bool", torch.tensor([2, 0], dtype=torch.uint8), (0, 1, 0.5, 1), "True"),
        (
            "float8_e4m3fn",
            torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn),
            (-2, 1.5, -0.25, 2.5),
            "1.5",
        ),
        (
            "uint64",
            torch.tensor([2**63, 0], dtype=torch.uint64),
            (0, 2.0**63, 2.0**62, 2.0**63),
            str(2**63),
        ),
        (
            "float64",
            torch.tensor([1e300, 1e300], dtype=torch.float64),
            (1e300, 1e300, 1e300, None),
            "1e+300",
        ),
    ],
)
def test_every_dtype_has_its_statistics(
    dtype: str, parts: Any, statistics: Any, first: str
) -> None:
    stats = TensorStats(torch, getattr(torch, dtype))
    stats.add(bytearray(_bytes(torch.as_tensor(parts))), begins=True)
    assert stats.error == ""
    assert stats.statistics == pytest.approx(statistics)
    assert stats.first[0] == first


def test_statistics_do_not_depend_on_the_pieces() -> None:
    values = torch.randn(3 * MAX_VALUES + 5)
    values[MAX_VALUES + 3] = float("nan")
    finite, stats = values[~values.isnan()].double(), TensorStats(torch, values.dtype)
    raw = bytearray(_bytes(values))
    for start in range(0, len(raw), stats.piece):
        stats.add(raw[start : start + stats.piece], begins=start == 0)
    expected = (finite.min(), finite.max(), finite.mean(), finite.norm())
    assert stats.statistics == pytest.approx([float(value) for value in expected])
    assert (stats.nans, stats.infinities) == (1, 0)


def test_a_dtype_that_torch_cannot_compute_with_has_a_checksum() -> None:
    stats = TensorStats(torch, torch.float4_e2m1fn_x2)
    stats.add(bytearray(8), begins=True)
    assert stats.checksum
    assert "cannot compute" in stats.error


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.view(torch.uint8).tolist())
