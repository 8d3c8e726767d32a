"""What recording more costs a rank, in the words that a person reads before saying yes.

The figures are those of `python -m bench tensor_checks` and `mark_cost`, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frtop_probe.wire.recording import NumbersOrder

COPY_MS: Final = 1.0
"""Per MiB, in the thread that trains: the copy. Pages of the buffer are made when first used."""
COUNT_MS: Final = 1.5
"""Per MiB, in a thread of its own with low priority: sums, counts and the checksum."""
BUFFER_MIB: Final = 64
PHASE_US: Final = 4
SITE_US: Final = 0.9
"""Per op, on the host."""
MODULES: Final = "1 us a call of a module and 3 us an op, on the host"

LONGER: Final = (
    "the last 65,536 ops instead of 8,192, for 5.8 MB of shared memory more (a small ring: 8,192"
    " instead of 512, 0.7 MB), until the rank ends; a look at statistics then costs the agent up to"
    " 0.1 s of a core"
)
"""As in `ring.layout`; no op takes longer."""


def number_costs(order: NumbersOrder) -> Iterator[str]:
    """What an order to sample numbers costs each rank."""
    if order.ops:
        sides = "inputs and results" if order.inputs else "results"
        every = "every op" if order.every == 1 else f"every {order.every}th op"
        yield f"{every}, {sides}: up to {order.ops:,} ops, for at most {order.seconds} s"
    if order.steps:
        yield (
            f"gradients and parameters at {order.steps:,} steps of optimizers, 32 MiB of each at a"
            " step"
        )
    yield (
        f"the training thread waits for a copy: about {COPY_MS:.0f} ms a MiB and 0.3 ms a sample,"
        f" more for the first {BUFFER_MIB} MiB"
    )
    yield (
        f"a thread of low priority counts: about {COUNT_MS:.1f} ms of a core a MiB, some of it"
        f" with the GIL; {BUFFER_MIB} MiB of memory"
    )
    yield "tensors of sampled ops are kept until a wait for them ends; no device is waited for"
