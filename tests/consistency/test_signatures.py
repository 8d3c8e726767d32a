"""Which fields of a signature must agree, also for sizes that no tensor can have."""

from __future__ import annotations

from frtop_probe.consistency.signatures import agreed, difference
from frtop_probe.wire import Signature, TensorSpec


def all_reduce_of(*shape: int) -> Signature:
    return Signature("all_reduce", "sum", inputs=(TensorSpec("float32", shape),))


def test_reshaped_tensors_agree_and_larger_ones_differ() -> None:
    one, reshaped = all_reduce_of(2**40, 6), all_reduce_of(3, 2**41)
    assert agreed(one) == agreed(reshaped) == f"all_reduce\nsum\n\nfloat32\n{6 * 2**40}\n\n"
    assert difference(one, reshaped) is None
    for larger in (all_reduce_of(2**40, 7), all_reduce_of(*(2**62,) * 20_000)):
        assert agreed(one) != agreed(larger) is not None
        assert difference(one, larger) == "size"
