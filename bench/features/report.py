"""The cost of `frtop_probe.report`, per call and per name; and what a busy job costs the agent."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from bench.gloo_job import alternate, begin_fake_rank, run

ROUNDS: Final = 3
BLOCKS: Final = 12
CALLS: Final = 1500
BUDGET_US: Final = 5.0
"""The budget of a name."""
NAMES: Final = {
    "one number": 1,
    "three numbers": 3,
    "32 numbers": 32,
    "a CPU tensor": 1,
    "a CPU tensor that requires a gradient": 1,
    "a numpy scalar": 1,
    "a tensor on a device, refused": 1,
}
_STEPS: Final = 60


def main() -> None:
    """Prints the fastest block of each, in µs, and the cost of reading them."""
    pooled = alternate(_child, ("bare", "with"), ROUNDS)
    print(f"reported values, µs per call, one process (budget {BUDGET_US:+.0f} a name)")
    print(f"{'call':<44}{'names':>6}{'off':>9}{'with':>9}{'a name':>9}")
    for name, found in pooled.items():
        bare, ours = min(found["bare"]), min(found["with"])
        print(f"{name:<44}{NAMES[name]:>6}{bare:>9.1f}{ours:>9.1f}{ours / NAMES[name]:>9.1f}")
    (read,) = _child("read")["read"]
    print(f"an agent reads and packs three names of {_STEPS} steps in {read:.0f} µs")


def _child(mode: str) -> dict[str, list[float]]:
    (printed,) = run("bench.features.report", mode, ranks=1)
    found: dict[str, list[float]] = json.loads(printed)
    return found


def measure(mode: str) -> dict[str, list[float]]:
    """Runs in a child; returns the median of each block in µs."""
    torch = begin_fake_rank(recorder=mode != "bare")
    if mode == "read":
        return {"read": [_read()]}
    return {name: [_block(call) for _ in range(BLOCKS)] for name, call in _calls(torch).items()}


def _calls(torch: Any) -> dict[str, Callable[[], object]]:
    import numpy as np  # noqa: PLC0415

    from frtop_probe import report  # noqa: PLC0415

    many = {f"n{number}": float(number) for number in range(28)}
    tensor, scalar, device = torch.ones(()), np.float32(1), torch.ones((), device="meta")
    grown = torch.ones((), requires_grad=True)
    calls: tuple[Callable[[], object], ...] = (
        lambda: report(loss=1.5),
        lambda: report(loss=1.5, lr=0.1, tokens=4096),
        lambda: report(loss=1.5, lr=0.1, tokens=4096, device=0.5, **many),
        lambda: report(loss=tensor),
        lambda: report(loss=grown),
        lambda: report(loss=scalar),
        lambda: report(device=device),
    )
    return dict(zip(NAMES, calls, strict=True))


def _read() -> float:
    import frtop_probe  # noqa: PLC0415
    from frtop_probe.agent.reported_series import ReportedSeries  # noqa: PLC0415
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415
    from frtop_probe.ring.reader import Ring  # noqa: PLC0415

    assert lifecycle.recorder is not None
    series = ReportedSeries(Ring(lifecycle.recorder.ring.path))
    took = []
    for block in range(50):
        for step in range(_STEPS):
            frtop_probe.report(block * _STEPS + step, loss=1 / (step + 1), lr=0.1, tokens=4096)
        series._ring.refresh()  # noqa: SLF001
        begin = time.perf_counter_ns()
        series.fresh()
        took.append((time.perf_counter_ns() - begin) / 1000)
    return min(took)


def _block(call: Callable[[], object]) -> float:
    clock = time.perf_counter_ns
    for _ in range(50):
        call()
    samples = []
    for _ in range(CALLS):
        begin = clock()
        call()
        samples.append((clock() - begin) / 1000)
    return statistics.median(samples)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
