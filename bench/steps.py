"""The cost of the recorder per training step: DDP, FSDP2 and tensor parallel on gloo, two ranks.

First, the same steps run twice from the same start, without and with the recorder: losses and
parameters must be equal bit by bit. Then pairs of blocks run without and with it inside one
process, because two runs differ by more than a percent anyway. All ranks switch at the same step.

Native kernels cost next to nothing while they are switched off. So with them single steps are
compared as well, recorded and not in turn: many more pairs in the same time, and closer neighbours.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench import gloo_job
from bench.paired import Interval, differences, median_interval

KINDS: Final = os.environ.get("STEPS_KINDS", "ddp ddp_512 fsdp tensor_parallel").split()
"""DDP with batches of 64 rows and of 512: the ops are the same, and the step takes longer."""
MAX_PAIRS: Final = 200
MEASURE_S: Final = 25.0
MOST_S: Final = float(os.environ.get("STEPS_S", "100"))
"""Steps in turn go on for so long, unless their interval is narrow before."""
NARROW_PERCENT: Final = 1.2
"""Half of it on each side leaves out a cost of 1 % where there is none."""
STEPS: Final = 4
"""Steps of a block."""
PAIRS_IN_TURN: Final = 10
"""Two pairs each, between looks at the clock."""
EQUAL_STEPS: Final = 5
WARM_STEPS: Final = 2
"""Steps after each switch: the kernels are new, and the ranks come together again."""
BUDGET_PERCENT: Final = 0.3
Times = tuple[list[float], list[float]]
"""In ms, with the recorder and without."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a rank saw, in ms, with and without: median steps of blocks; single steps in turn."""

    wall: Times
    cpu: Times
    turns: Times
    turns_cpu: Times
    ops: float
    equal: bool


def main() -> None:
    """Prints step times without and with the recorder, and the median difference of the pairs."""
    print(f"recorder, training steps of 2 ranks on gloo: pairs of blocks of {STEPS} steps, "
          f"without and with it (budget {BUDGET_PERCENT:+.1f} %)")  # fmt: skip
    print("added: median of the differences of pairs, and its 95 % interval; "
          "cpu: all threads of rank 0")  # fmt: skip
    kernels = gloo_job.kernels()
    titles = f"{'without':>11}{'us':>26}{'%':>28}{'us an op':>10}{'pairs':>7}"
    print(f"{'step':<16}{'kernels':<8}{'ops':>4} {'clock':<5}{titles}  results")
    for kind, kernel in itertools.product(KINDS, kernels):
        found = gloo_job.run("bench.steps", kind, variables=gloo_job.KERNELS[kernel],
                             limit_s=gloo_job.LIMIT_S + MOST_S)  # fmt: skip
        ranks = [Measured(**json.loads(out)) for out in found]
        equal = "bit-equal" if all(one.equal for one in ranks) else "DIFFERENT"
        ops = ranks[0].ops
        print(f"{kind:<16}{kernel:<8}{ops:>4.0f} wall {row(*ranks[0].wall, ops)}  {equal}")
        print(f"{'':<29}cpu  {row(*ranks[0].cpu, ops)}", flush=True)
        if ranks[0].turns[0]:
            print(f"{'':<16}{'in turn':<13}wall {row(*ranks[0].turns, ops)}")
            print(f"{'':<29}cpu  {row(*ranks[0].turns_cpu, ops)}", flush=True)


def row(on_ms: list[float], off_ms: list[float], ops: float) -> str:
    """Returns a row of the figures of pairs of blocks."""
    without = statistics.median(off_ms)
    added = median_interval(differences(on_ms, off_ms))
    percent = added.scaled(100 / without)
    each = 1000 * added.median / ops if ops else 0.0
    return (f"{without:>8.2f} ms{_text(added.scaled(1000), '.0f'):>26}"
            f"{_text(percent, '.2f'):>28}{each:>+10.1f}{len(on_ms):>7}")  # fmt: skip


def _text(interval: Interval, form: str) -> str:
    low, median, high = (f"{value:+{form}}" for value in asdict(interval).values())
    return f"{median} ({low} … {high})"


# -- a rank


def measure(kind: str) -> Measured:
    """Runs one rank."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    from bench.recorder_switch import RecorderSwitch  # noqa: PLC0415 - only ranks need these
    from gpu_kit.programs import training  # noqa: PLC0415
    from gpu_kit.programs.joining import Here  # noqa: PLC0415

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    here = Here(dist.get_rank(), dist.get_world_size(), torch.device("cpu"), Path(os.devnull))
    switch, make = RecorderSwitch(torch), training.MAKERS[kind]
    equal = len({_trained(switch, make, here, on=on) for on in (False, True)}) == 1
    step, _ = make(here)
    blocks: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    ops: list[float] = []
    began = time.monotonic()
    for pair in range(-1, MAX_PAIRS):
        first = bool(pair % 2)  # the first of a pair inherits what the last block left behind
        for on in (first, not first):
            before = switch.issued()
            found = _block(switch, step, on=on)
            if on:
                ops.append((switch.issued() - before) / (WARM_STEPS + STEPS))
            if pair >= 0:
                blocks[on].append(found)
        late = torch.tensor(float(time.monotonic() - began > MEASURE_S))
        dist.all_reduce(late)
        if late:
            break
    switch.set(True)
    turns, turns_cpu = _in_turn(switch, step) if switch.is_native else (([], []), ([], []))
    dist.destroy_process_group()
    wall, cpu = (
        tuple([block[clock] for block in blocks[on]] for on in (True, False)) for clock in (0, 1)
    )
    return Measured(wall, cpu, turns, turns_cpu, statistics.median(ops), equal)  # type: ignore[arg-type]


def _in_turn(switch: Any, step: Any) -> tuple[Times, Times]:
    """Returns times of neighbouring steps, recorded and not; either is first in half of them.

    The first two lists are wall time, the other two CPU time: where others use the processors as
    well, it alone shows what a step costs.
    """
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    wall: dict[bool, list[float]] = {True: [], False: []}
    cpu: dict[bool, list[float]] = {True: [], False: []}
    began_s, over = time.monotonic(), torch.tensor(0.0)
    while not over:
        for _ in range(PAIRS_IN_TURN):
            for first in (True, False):
                for on in (first, not first):
                    switch.enable(on)
                    began, used = time.perf_counter(), time.process_time()
                    step()
                    wall[on].append(1000 * (time.perf_counter() - began))
                    cpu[on].append(1000 * (time.process_time() - used))
        passed_s = time.monotonic() - began_s
        enough = passed_s > MEASURE_S and _is_narrow(wall[True], wall[False])
        over.fill_(float(enough or passed_s > MOST_S))
        dist.all_reduce(over)
    switch.enable(True)
    return (wall[True], wall[False]), (cpu[True], cpu[False])


def _is_narrow(on_ms: list[float], off_ms: list[float]) -> bool:
    added = median_interval(differences(on_ms, off_ms))
    return added.high - added.low < NARROW_PERCENT / 100 * statistics.median(off_ms)


def _trained(switch: Any, make: Any, here: Any, *, on: bool) -> str:
    """Trains from the start; returns losses and parameters, exact to the bit."""
    switch.set(on)
    step, digest = make(here)
    losses = [float(step()).hex() for _ in range(EQUAL_STEPS)]
    return " ".join([*losses, digest()])


def _block(switch: Any, step: Any, *, on: bool) -> tuple[float, float]:
    """Returns wall and CPU time of the median step, in ms."""
    switch.set(on)
    for _ in range(WARM_STEPS):
        step()
    wall, cpu = [], []
    for _ in range(STEPS):
        began, used = time.perf_counter(), time.process_time()
        step()
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - used))
    return statistics.median(wall), statistics.median(cpu)


if __name__ == "__main__":
    gloo_job.report(asdict(measure(sys.argv[1])))
