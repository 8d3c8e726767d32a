"""The cost of recording modules, per module call and per op; for whole steps see `side_by_side`.

Processes without the recorder, with it, and with it and modules alternate. The fastest block
counts, because other load on the machine only adds time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from bench.gloo_job import alternate, begin_fake_rank, run

ROUNDS: Final = 3
BLOCKS: Final = 8
CALLS: Final = 1000
MODES: Final = ("bare", "with", "modules")
BUDGET_US: Final = 5.0
"""The budget of a module call."""
ONE: Final = (
    "call of a module",
    "call of a module with a hook of its own",
    "all_reduce in ten modules",
    "all_reduce outside of modules",
)


def main() -> None:
    """Prints the fastest block of each, in µs, and the difference."""
    pooled = alternate(_child, MODES, ROUNDS)
    print(f"modules, µs per call, one process, fake backend (budget {BUDGET_US:+.0f} a call)")
    print(f"{'':<42}{'bare':>10}{'recorder':>10}{'modules':>10}{'for modules':>13}")
    for name, found in pooled.items():
        bare, ours, modules = (min(found[mode]) for mode in MODES)
        print(f"{name:<42}{bare:>10.1f}{ours:>10.1f}{modules:>10.1f}{modules - ours:>+13.1f}")


def _child(mode: str) -> dict[str, list[float]]:
    variables = {"FRTOP_MODULES": str(int(mode == "modules"))}
    (printed,) = run("bench.features.modules", mode, ranks=1, variables=variables)
    found: dict[str, list[float]] = json.loads(printed)
    return found


def measure(mode: str) -> dict[str, list[float]]:
    """Runs in a child; returns the time of each block in µs per call."""
    torch = begin_fake_rank(recorder=mode != "bare")
    calls = _calls(torch)
    found = {name: [_block(call) for _ in range(BLOCKS)] for name, call in calls.items()}
    torch.distributed.destroy_process_group()
    return found


def _calls(torch: Any) -> dict[str, Callable[[], object]]:
    dist = torch.distributed
    given, one = torch.ones(1), torch.ones(1)

    class Reducing(torch.nn.Module):  # type: ignore[misc]
        def forward(self, value: Any) -> Any:
            dist.all_reduce(one)
            return value

    class Nested(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, value: Any) -> Any:
            return self.inner(value)

    plain, hooked, deep = torch.nn.Identity(), torch.nn.Identity(), Reducing()
    hooked.register_forward_hook(lambda *_: None)
    for _ in range(9):
        deep = Nested(deep)
    calls = (
        lambda: plain(given), lambda: hooked(given), lambda: deep(given),
        lambda: dist.all_reduce(one),
    )  # fmt: skip
    return dict(zip(ONE, calls, strict=True))


def _block(call: Callable[[], object]) -> float:
    call()
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - begin) / CALLS / 1000


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
