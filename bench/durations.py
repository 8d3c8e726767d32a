"""The accuracy of recorded durations of ops, compared with known sleeps and waits on gloo."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from bench import gloo_job

ROUNDS: Final = 40
SLEEPS_S: Final = (0.001, 0.01, 0.05, 0.1)
BUDGET_MS: Final = 1.0


def main() -> None:
    """Prints how much the recorded end of an op differs from the return of its wait."""
    print("recorded ends of ops, gloo, two ranks: ms beside the truth (budget 1 ms)")
    print(f"{'op':<44}{'kernels':<8}{'ops':>6}{'exact':>7}{'median':>9}{'worst':>9}")
    for kernel in gloo_job.kernels():
        variables = gloo_job.KERNELS[kernel]
        found = [
            json.loads(out) for out in gloo_job.run("bench.durations", "rank", variables=variables)
        ]
        for name in found[0]:
            rows = [row for one in found for row in one[name]]
            errors = [abs(error) / 1e6 for error, late in rows if not late]
            middle = f"{statistics.median(errors):>9.3f}{max(errors):>9.3f}" if errors else ""
            print(f"{name:<44}{kernel:<8}{len(rows):>6}{len(errors):>7}{middle}", flush=True)


def measure() -> dict[str, list[tuple[int, bool]]]:
    """Runs in a rank; returns, by use, the errors in ns, and whether the end is not known."""
    import torch  # noqa: PLC0415 - only the ranks need torch
    import torch.distributed as dist  # noqa: PLC0415
    from torch.distributed import _functional_collectives  # noqa: PLC0415

    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415
    from frtop_probe.ring.layout import Event, Flag  # noqa: PLC0415
    from frtop_probe.ring.reader import Ring  # noqa: PLC0415

    lifecycle.start()
    dist.init_process_group("gloo")
    assert lifecycle.recorder is not None
    ring = Ring(lifecycle.recorder.ring.path)
    functional: Any = _functional_collectives
    rank, tensor, large = dist.get_rank(), torch.ones(1000), torch.ones(2_000_000)
    peer = 1 - rank

    def passed(async_op: bool, sleep: float) -> Any:
        if (rank == 0) == async_op:
            time.sleep(sleep)  # the other one waits for us
        work = dist.all_reduce(tensor, async_op=True) if async_op else None
        if work is None:
            return dist.all_reduce(tensor)
        return work.wait()

    def functionally(sleep: float) -> None:
        if rank == 0:
            time.sleep(sleep)
        result = functional.all_reduce(torch.ones(1000), "sum", dist.group.WORLD)
        values = result.elem.numpy()  # reading `result` itself would wait
        while values[-1] == 1:  # until both ranks' ones are added
            os.sched_yield()
        seen.append(time.monotonic_ns())
        functional.wait_tensor(result)

    uses: dict[str, Callable[[float], object]] = {
        "synchronous, then asleep": lambda _: dist.all_reduce(tensor),
        "synchronous, one waits for the other": lambda sleep: passed(False, sleep),
        "asynchronous, waited for at once": lambda sleep: passed(True, sleep),
        "functional, one waits for the other": functionally,
        "functional, 8 MB": lambda _: functional.wait_tensor(
            functional.all_reduce(large, "sum", dist.group.WORLD)
        ),
        "send and recv": lambda _: dist.send(tensor, peer) if rank else dist.recv(tensor, peer),
        "asynchronous, waited for after a sleep": lambda sleep: seen.append(
            _late(dist, tensor, sleep)
        ),
    }
    seen: list[int] = []  # the end, where it was before the use returned
    found: dict[str, list[tuple[int, bool]]] = {}
    for name, use in uses.items():
        rows = found.setdefault(name, [])
        use(0.0)  # the first call of a kind loads code
        seen.clear()
        for n in range(ROUNDS):
            sleep = SLEEPS_S[n % len(SLEEPS_S)]
            use(sleep)
            truth = seen.pop() if seen else time.monotonic_ns()
            time.sleep(sleep)
            last = [row for row in ring.events(0, 4)[0] if row.event is Event.OP][-1]
            is_known = last.done_ns > 0 and Flag.LATE not in last.flags
            rows.append((truth - last.done_ns, not is_known))
    dist.barrier()
    return found


def _late(dist: Any, tensor: Any, sleep: float) -> int:
    """Waits for an op long after its end; returns when that was, as a busy loop sees it."""
    work = dist.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        pass
    ended = time.monotonic_ns()
    time.sleep(sleep)
    work.wait()
    return ended


if __name__ == "__main__":
    if len(sys.argv) > 1:
        gloo_job.report(measure())
    else:
        main()
