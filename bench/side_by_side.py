"""What it costs to look inside steps: frtop at each level, beside what people use today.

Each way has a job of two ranks on gloo. Blocks of steps without anything and with that way
alternate, so both see the same machine; medians of the differences of pairs count. The ways do not
show the same: see docs/in-a-job.md.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from bench import gloo_job
from bench.steps import row

KINDS: Final = ("40 small ops", "DDP", "FSDP2", "tensor parallel")
MIN_PAIRS: Final = 10
MAX_PAIRS: Final = 100
MEASURE_S: Final = 6.0
STEPS: Final = 4
"""Steps of a block."""
WARM_STEPS: Final = 2
LAYERS: Final = 4
WIDTH: Final = 256
Step = Callable[[], object]
Entered = Callable[[], contextlib.AbstractContextManager[object]]
Way = Callable[["Tools"], contextlib.AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Measured:
    """What rank 0 saw: the median step of each block in ms, with and without; ops of a step."""

    took: tuple[list[float], list[float]]
    ops: float


def main() -> None:
    """Prints step times without and with each way, and the median difference of the pairs."""
    print(f"ways to look inside, steps of 2 ranks on gloo: pairs of blocks of {STEPS} steps")
    print("added: median of the differences of pairs, and its 95 % interval")
    titles = f"{'without':>11}{'us':>26}{'%':>28}{'us an op':>10}{'pairs':>7}"
    kernels = gloo_job.kernels()
    for kind in KINDS:
        print(f"{kind:<35}{titles}")
        for way, variables in WAYS.items():
            if "native" in way and "native" not in kernels:
                continue
            try:
                ranks = gloo_job.run("bench.side_by_side", kind, way, variables=variables)
            except subprocess.CalledProcessError:
                print(f"  {way:<33}  ends the program", flush=True)
                continue
            found = Measured(**json.loads(ranks[0]))
            print(f"  {way:<33}{row(*found.took, found.ops)}", flush=True)


# -- a rank


class Tools:
    """What the ways need of one rank."""

    def __init__(self, way: str) -> None:
        import torch  # noqa: PLC0415 - only ranks need it
        import torch.distributed as dist  # noqa: PLC0415

        self.torch: Any = torch
        self.dist: Any = dist
        self.plain: Any = self.dist.group.WORLD
        self.checked = self.plain
        if way == DETAIL:  # then the default group checks all ops, and another one does not
            self.dist.set_debug_level(self.dist.DebugLevel.OFF)
            self.plain = self.dist.new_group()

    @contextlib.contextmanager
    def debug_level(self, level: Any) -> Iterator[None]:
        """Sets torch's debug level within the context."""
        before = self.dist.get_debug_level()
        self.dist.set_debug_level(level)
        try:
            yield
        finally:
            self.dist.set_debug_level(before)


@contextlib.contextmanager
def _recorder(tools: Tools, phases: bool = False) -> Iterator[None]:
    from bench.recorder_switch import RecorderSwitch  # noqa: PLC0415
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    switch = RecorderSwitch(tools.torch)
    switch.set(True)
    assert lifecycle.recorder is not None
    if phases:
        lifecycle.recorder.switch_phases(on=True)
    try:
        yield
    finally:
        switch.set(False)


@contextlib.contextmanager
def _numbers(tools: Tools) -> Iterator[None]:
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    with _recorder(tools):
        assert lifecycle.recorder is not None
        requests = lifecycle.recorder.requests
        order = {"every": 1, "ops": 10**6, "seconds": 3600, "inputs": True}
        requests.respond({"ask": "ChangeRecording", "settings": {"numbers": order}}, lambda: True)
        try:
            yield
        finally:
            stop = {"ask": "ChangeRecording", "settings": {"numbers": {"ops": 0}}}
            requests.respond(stop, lambda: True)


def _wrapper(tools: Tools) -> contextlib.AbstractContextManager[object]:
    """What people write by hand to see where ranks differ: wait for each op, print its mean."""
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415
    from torch.utils._pytree import tree_leaves  # noqa: PLC0415

    torch, means = tools.torch, list[float]()

    class Synchronising(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if func.namespace in {"c10d", "_c10d_functional"}:
                leaves = tree_leaves((args, result))
                for work in leaves:
                    if isinstance(work, torch.ScriptObject) and hasattr(work, "wait"):
                        work.wait()
                tensors = (one for one in leaves if isinstance(one, torch.Tensor))
                means.extend(one.float().mean().item() for one in tensors if one.numel())
                means.clear()
            return result

    return Synchronising()  # type: ignore[no-untyped-call]


def _comm_debug(_: Tools) -> contextlib.AbstractContextManager[object]:
    from torch.distributed.tensor.debug import CommDebugMode  # noqa: PLC0415

    mode: contextlib.AbstractContextManager[object] = CommDebugMode()  # type: ignore[no-untyped-call]
    return mode


def _profiler(tools: Tools) -> contextlib.AbstractContextManager[object]:
    profiler = tools.torch.profiler
    running: contextlib.AbstractContextManager[object] = profiler.profile(
        activities=[profiler.ProfilerActivity.CPU]
    )
    return running


def _detail(tools: Tools) -> contextlib.AbstractContextManager[object]:
    return tools.debug_level(tools.dist.DebugLevel.DETAIL)


DETAIL: Final = "TORCH_DISTRIBUTED_DEBUG=DETAIL"
_ENTERED: Final[dict[str, Way]] = {
    "nothing": lambda _: contextlib.nullcontext(),
    "frtop": _recorder,
    "frtop, native kernels": _recorder,
    "frtop, phases": lambda tools: _recorder(tools, phases=True),
    "frtop, modules": _recorder,
    "frtop, all values sampled": _numbers,
    "synchronising wrapper": _wrapper,
    "CommDebugMode": _comm_debug,
    "torch.profiler": _profiler,
    DETAIL: _detail,
}
OF_A_STEP: Final = frozenset({"CommDebugMode"})
"""Ways that see a single step, and are entered again for the next."""
WAYS: Final[dict[str, dict[str, str]]] = {
    **{way: {} for way in _ENTERED},
    "frtop, native kernels": gloo_job.KERNELS["native"],
    "frtop, modules": {"FRTOP_MODULES": "1"},
    DETAIL: {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
}
"""Each way, with the environment variables that it needs."""


def measure(kind: str, way: str) -> Measured:
    """Runs one rank."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tools = Tools(way)
    plain = _maker(kind, tools, tools.plain)
    with _ENTERED[way](tools) if way == DETAIL else contextlib.nullcontext():
        seen = plain if tools.checked is tools.plain else _maker(kind, tools, tools.checked)
    ops = _ops_of(tools, plain)
    took: dict[bool, list[float]] = {True: [], False: []}
    began = time.monotonic()
    for pair in range(-1, MAX_PAIRS):
        first = bool(pair % 2)  # the first of a pair inherits what the last block left behind
        for on in (first, not first):
            entered = _ENTERED[way](tools) if on else contextlib.nullcontext()
            dist.barrier()  # no rank issues ops while another one changes over
            each = _ENTERED[way] if on and way in OF_A_STEP else None
            with entered if each is None else contextlib.nullcontext():
                found = _block(seen if on else plain, each and partial(each, tools))
            if pair >= 0:
                took[on].append(found)
        late = torch.tensor(float(time.monotonic() - began > MEASURE_S))
        dist.all_reduce(late)
        if late and pair >= MIN_PAIRS:
            break
    dist.barrier()
    dist.destroy_process_group()
    return Measured((took[True], took[False]), ops)


def _ops_of(tools: Tools, step: Step) -> float:
    """How many ops a step issues, as the recorder counts them."""
    from bench.recorder_switch import RecorderSwitch  # noqa: PLC0415

    switch = RecorderSwitch(tools.torch)
    switch.set(True)
    step()
    before = switch.issued()
    step()
    ops = switch.issued() - before
    switch.set(False)
    return ops


def _maker(kind: str, tools: Tools, group: Any) -> Step:
    torch, dist = tools.torch, tools.dist
    if kind == KINDS[0]:
        small = torch.ones(64)

        def many() -> None:
            for _ in range(40):
                dist.all_reduce(small, group=group)
            small.fill_(1.0)

        return many
    from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    from torch.distributed.tensor import parallel  # noqa: PLC0415

    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(*(
        layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
    ))  # fmt: skip
    if kind == "DDP":
        model = torch.nn.parallel.DistributedDataParallel(
            model, bucket_cap_mb=0.3, process_group=group
        )
    else:
        mesh = DeviceMesh.from_group(group, "cpu")
        linear = [one for one in model if isinstance(one, torch.nn.Linear)]
        if kind == "FSDP2":
            for layer in (*linear, model):
                fully_shard(layer, mesh=mesh)
        else:
            styles = parallel.ColwiseParallel, parallel.RowwiseParallel
            for place, layer in enumerate(linear):
                parallel.parallelize_module(layer, mesh, styles[place % 2]())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    given = torch.ones(16, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(given).square().mean().backward()
        optimizer.step()

    return step


def _block(step: Step, entered: Entered | None) -> float:
    """Returns the wall time of the median step, in ms; `entered` is entered for each step."""
    times = []
    for number in range(WARM_STEPS + STEPS):
        began = time.perf_counter()
        with contextlib.nullcontext() if entered is None else entered():
            step()
        if number >= WARM_STEPS:
            times.append(1000 * (time.perf_counter() - began))
    times.sort()
    return (times[(STEPS - 1) // 2] + times[STEPS // 2]) / 2


if __name__ == "__main__":
    if len(sys.argv) > 1:
        gloo_job.report(asdict(measure(*sys.argv[1:3])))
    else:
        main()
