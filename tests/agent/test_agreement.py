"""Which signatures agree, also with extreme values."""

from __future__ import annotations

import pytest

from frtop_probe.agreement import agreed, difference
from frtop_probe.wire import Signature, TensorSpec


def reduce_of(*shape: int) -> Signature:
    return Signature("all_reduce", "sum", inputs=(TensorSpec("float32", shape),))


def test_a_reshaped_tensor_agrees_but_a_larger_one_differs() -> None:
    one, reshaped, other = reduce_of(2**40, 6), reduce_of(3, 2**41), reduce_of(2**40, 7)
    assert agreed(one) == agreed(reshaped) == f"all_reduce\nsum\n\nfloat32\n{6 * 2**40}\n\n"
    assert agreed(one) != agreed(other)
    assert difference(one, reshaped) is None
    assert difference(one, other) == "size"


@pytest.mark.parametrize("dimensions", [300, 20_000])
def test_huge_sizes_are_compared(dimensions: int) -> None:
    endless = reduce_of(*(2**62,) * dimensions)
    assert agreed(endless) is not None
    assert difference(endless, reduce_of(3)) == "size"
