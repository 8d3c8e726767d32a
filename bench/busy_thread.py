"""The delay of an op that C++ issues while a Python thread computes: DDP on gloo.

DDP's reducer issues its ops in C++, without the GIL. With a kernel in Python each op takes the GIL,
and a thread that computes in Python gives it up only every 5 ms (`sys.getswitchinterval`). Native
kernels do not take it. torch's own Flight Recorder takes it, too, for the stack that it keeps of
an op. torch's profiler times each op in C++: its span begins before our kernel and ends when the op
has been issued. Blocks without and with the recorder alternate inside one process: first with an
idle interpreter, then beside such a thread, then beside it without the Flight Recorder.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from bench import gloo_job
from bench.paired import differences, median_interval

RANKS: Final = max(1, min(2, (os.cpu_count() or 1) // 2))
"""Each rank has two busy threads. With more threads than cores, this would time the scheduler."""
MEASURE_S: Final = 30.0
MAX_PAIRS: Final = 150
STEPS: Final = 2
"""Steps of a block."""
LAYERS: Final = 12
WIDTH: Final = 64
JOBS: Final = {
    "idle": {},
    "busy": {},
    "busy, FR off": {"TORCH_FR_BUFFER_SIZE": "0"},
}
_QUIET: Final = {"KINETO_LOG_LEVEL": "99"}
"""Otherwise the profiler prints two lines for each block."""
_OP: Final = "c10d::allreduce_"


@dataclass(frozen=True, slots=True)
class Block:
    """Delays of the ops in us, the median step in ms, and how often the thread has computed."""

    ops_us: list[float]
    step_ms: float
    computed_hz: float


def main() -> None:
    """Prints the delay of ops without and with the recorder, and what it adds to op and step."""
    switch_ms = 1000 * sys.getswitchinterval()
    print(f"delay of an op of DDP's reducer in us, gloo, {RANKS} rank(s); "
          f"a busy thread keeps the GIL for {switch_ms:.0f} ms")  # fmt: skip
    print(f"{'Python beside it':<17}{'recorder':>9}{'ops':>7}{'mean':>8}{'p50':>8}{'p99':>8}"
          f"{'p99.9':>8}{'step':>12}{'its loops/s':>13}")  # fmt: skip
    for (name, of_job), kernel in itertools.product(JOBS.items(), gloo_job.kernels()):
        variables = _QUIET | of_job | gloo_job.KERNELS[kernel]
        printed = gloo_job.run("bench.busy_thread", name, ranks=RANKS, variables=variables)
        found = json.loads(printed[0])
        off, on = ([Block(**block) for block in found[state]] for state in ("off", "on"))
        print(row(name, "out", off))
        print(row("", kernel, on))
        print(f"{'':<17}{'added':>9} {added(on, off)}", flush=True)


def row(name: str, state: str, blocks: list[Block]) -> str:
    """Returns a row of the figures of all blocks of a state."""
    delays = _delays(blocks)
    columns = (statistics.fmean(delays), *percentiles(delays))
    step = statistics.median(block.step_ms for block in blocks)
    computed = statistics.median(block.computed_hz for block in blocks)
    return (f"{name:<17}{state:>9}{len(delays):>7}"
            f"{''.join(f'{column:>8.0f}' for column in columns)}"
            f"{step:>9.2f} ms{computed:>13.0f}")  # fmt: skip


def added(on: list[Block], off: list[Block]) -> str:
    """Returns what the recorder adds: medians over pairs of blocks, and percentiles of all ops."""
    mean, step = (
        median_interval(differences([value(block) for block in on],
                                    [value(block) for block in off]))
        for value in (lambda block: statistics.fmean(block.ops_us), lambda block: block.step_ms)
    )  # fmt: skip
    tails = differences(percentiles(_delays(on)), percentiles(_delays(off)))
    return (f"mean {mean.median:+.0f} ({mean.low:+.0f} … {mean.high:+.0f}), p50 {tails[0]:+.0f}, "
            f"p99 {tails[1]:+.0f}, p99.9 {tails[2]:+.0f} us; step {step.median:+.2f} "
            f"({step.low:+.2f} … {step.high:+.2f}) ms, {len(on)} pairs")  # fmt: skip


def percentiles(values: list[float]) -> tuple[float, float, float]:
    """Returns p50, p99 and p99.9 of at least one value, without interpolation."""
    ordered = sorted(values)
    p50, p99, p999 = (ordered[int(part * (len(ordered) - 1))] for part in (0.5, 0.99, 0.999))
    return p50, p99, p999


def _delays(blocks: list[Block]) -> list[float]:
    return [delay for block in blocks for delay in block.ops_us]


# -- a rank


class _BusyThread:
    """Computes in Python until it is stopped."""

    def __init__(self) -> None:
        self.computed = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            sum(n * n for n in range(1000))
            self.computed += 1


def measure(name: str) -> dict[str, list[Block]]:
    """Runs one rank; returns its blocks, without the recorder and with it."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    from bench.recorder_switch import RecorderSwitch  # noqa: PLC0415 - only ranks need these

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    step = _step(torch)
    switch, busy = RecorderSwitch(torch), _BusyThread()
    if name != "idle":
        busy.start()
    found: dict[str, list[Block]] = {"off": [], "on": []}
    began = time.monotonic()
    for pair in range(-1, MAX_PAIRS):
        first = bool(pair % 2)
        for on in (first, not first):
            switch.set(on)
            block = _block(step, busy)
            if pair >= 0:
                found["on" if on else "off"].append(block)
        late = torch.tensor(float(time.monotonic() - began > MEASURE_S))
        dist.all_reduce(late)
        if late:
            break
    busy.stop()
    switch.set(True)
    dist.destroy_process_group()
    return found


def _step(torch: Any) -> Callable[[], object]:
    """Returns a step that mostly runs in C++, and has an op for each parameter."""
    parallel = torch.nn.parallel.DistributedDataParallel
    model = parallel(torch.nn.RNN(WIDTH, WIDTH, LAYERS), bucket_cap_mb=0.001)
    batch = torch.randn(4, 8, WIDTH)

    def step() -> None:
        model(batch)[0].sum().backward()

    return step


def _block(step: Callable[[], object], busy: _BusyThread) -> Block:
    from torch.autograd.profiler import profile  # noqa: PLC0415

    step()  # the kernels are new
    times = []
    with profile(use_cpu=True, use_kineto=True) as profiled:
        before, began = busy.computed, time.perf_counter()
        for _ in range(STEPS):
            step_began = time.perf_counter()
            step()
            times.append(1000 * (time.perf_counter() - step_began))
        computed_hz = (busy.computed - before) / (time.perf_counter() - began)
    assert profiled.kineto_results is not None
    events = profiled.kineto_results.events()
    ops_us = [event.duration_ns() / 1000 for event in events if event.name() == _OP]
    return Block(ops_us, statistics.median(times), computed_hz)


if __name__ == "__main__":
    measured = measure(sys.argv[1])
    gloo_job.report({state: [asdict(one) for one in blocks] for state, blocks in measured.items()})
