"""What it costs to look inside steps: frtop at each level, beside what people use today.

Each way has a job of two ranks on gloo. Blocks of steps without anything and with that way
alternate, so both see the same machine; medians of the differences of pairs count. What works
beside the job, or now and then, has long blocks, of which the mean step counts. The ways do not
show the same: see docs/compared.md.

Tools that frtop does not depend on are measured if they are installed, apart: INSTALL.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

from bench import gloo_job
from bench.steps import row
from free_port import free_port

KINDS: Final = ("40 small ops", "DDP", "FSDP2", "tensor parallel")
MIN_PAIRS: Final = 10
MAX_PAIRS: Final = 100
MEASURE_S: Final = 6.0
STEPS: Final = 4
"""Steps of a block."""
WARM_STEPS: Final = 2
LONG_S: Final = 2.0
"""A long block: TraceML samples as often, and the debug server is asked twice."""
START_S: Final = 120.0
LIMIT_S: Final = 900.0
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
    print(f"added: median of the differences of pairs, and its 95 % interval; long: blocks of "
          f"{LONG_S:.0f} s, mean step")  # fmt: skip
    print(", ".join(f"{name} {_version(name) or 'not installed'}" for name in SHOWN), flush=True)
    titles = f"{'without':>11}{'us':>26}{'%':>28}{'us an op':>10}{'pairs':>7}"
    kernels = gloo_job.kernels()
    for kind in KINDS:
        print(f"{kind:<38}{titles}")
        for way, variables in WAYS.items():
            if "native" in way and "native" not in kernels:
                continue
            if way in LONG and kind == KINDS[0]:
                continue
            if not all(map(_version, NEEDED.get(way, ()))):
                print(f"  {way:<36}  not installed: {INSTALL}", flush=True)
                continue
            try:
                ranks = gloo_job.run("bench.side_by_side", kind, way, variables=variables,
                                     limit_s=LIMIT_S)  # fmt: skip
            except subprocess.CalledProcessError:
                print(f"  {way:<36}  ends the program", flush=True)
                continue
            found = Measured(**json.loads(ranks[0]))
            print(f"  {way:<36}{row(*found.took, found.ops)}", flush=True)


def _version(package: str) -> str:
    found = metadata.distributions(name=package, path=[*sys.path, str(OTHERS)])
    return next((one.version for one in found), "")


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
        self.rank: int = self.dist.get_rank()
        self.model: Any = torch.nn.Identity()
        port = torch.tensor(free_port())
        self.dist.broadcast(port, 0)
        self.port = int(port)
        """The same for all ranks; free."""
        self.folder = Path(os.environ["FRTOP_DIR"])
        """The job's own, for all ranks; removed at its end."""
        self.patched: list[Any] | None = None
        self._beside: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def beside(
        self, command: list[str], variables: dict[str, str], is_ready: Callable[[], object]
    ) -> Iterator[None]:
        """Lets rank 0 have a process beside the job: it stands still outside the context."""
        if self._beside is None and self.rank == 0:
            self._beside = subprocess.Popen(
                [*WITH_US, *command], env={**os.environ, **variables},
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            _wait(is_ready)
        elif self._beside is not None:
            self._beside.send_signal(signal.SIGCONT)
        self.dist.barrier()
        try:
            yield
        finally:
            if self._beside is not None:
                self._beside.send_signal(signal.SIGSTOP)

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


@contextlib.contextmanager
def _with_agent(tools: Tools) -> Iterator[None]:
    from frtop_probe.agent.announcement import find_agent  # noqa: PLC0415

    variables = {
        "FRTOP_AGENT_WITH": str(os.getpid()), "FRTOP_BIND": "127.0.0.1",
        "FRTOP_PORT": str(tools.port), "FRTOP_KEY_FILE": str(tools.folder / "key"),
    }  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-m", "frtop_probe.agent"]
    ready = partial(find_agent, tools.folder)
    with _recorder(tools), tools.beside(command, variables, ready):
        yield


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


@contextlib.contextmanager
def _program(command: list[str], says: str) -> Iterator[None]:
    """Runs a program, from when it has printed `says` to the end of the context."""
    with subprocess.Popen([*WITH_US, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if not any(says in line for line in process.stdout):
                raise RuntimeError(f"{command[0]} does not start")
            yield
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} has ended early")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


@contextlib.contextmanager
def _sampled(tools: Tools) -> Iterator[None]:
    program = Path(sys.executable).with_name("py-spy")
    output = tools.folder / f"profile{tools.rank}"
    line = f"{program} record --rate 100 --format raw --output {output} --pid {os.getpid()}"
    with _program(line.split(), "Sampling process"):
        tools.dist.barrier()
        yield


@contextlib.contextmanager
def _debug_server(tools: Tools, asked: bool = False) -> Iterator[None]:
    from urllib.request import urlopen  # noqa: PLC0415

    from torch.distributed import debug  # noqa: PLC0415

    # With the default, a fork of a process with threads, it once did not answer for a minute.
    debug.start_debug_server(port=tools.port, start_method="spawn")
    url = f"http://127.0.0.1:{tools.port}"
    if tools.rank == 0:
        _wait(lambda: urlopen(url, timeout=START_S).read())
    tools.dist.barrier()
    # In torch 2.13 its page with Flight Recorder's tables fails for gloo: KeyError.
    pages = [f"{url}/stacks", f"{url}/fr_trace_json"]
    asking = _program([sys.executable, "-c", ASK, *pages], "asked")
    try:
        with asking if asked and tools.rank == 0 else contextlib.nullcontext():
            tools.dist.barrier()
            yield
    finally:
        if tools.rank == 0:
            debug.stop_debug_server()
        else:  # torch's own function ends the server of rank 0 only, and fails elsewhere
            debug._WORKER_SERVER.shutdown()  # type: ignore[union-attr]  # noqa: SLF001
            debug._WORKER_SERVER = None  # noqa: SLF001


ASK: Final = """
import signal, sys, time, urllib.request
signal.signal(signal.SIGINT, signal.SIG_DFL)
while True:
    began = time.monotonic()
    for page in sys.argv[1:]:
        urllib.request.urlopen(page, timeout=60).read()
    print("asked", flush=True)
    time.sleep(max(0.0, began + 1.0 - time.monotonic()))
"""


@contextlib.contextmanager
def _traceml(tools: Tools) -> Iterator[None]:
    """Does what `traceml run` does for a script that calls `traceml_ai.init()`.

    TraceML puts its functions into torch for good. Outside the context torch's own are there again.
    """
    torch, dist = tools.torch, tools.dist
    own = [getattr(owner, name) for owner, name in _traced(torch)]
    os.environ.update({
        "TRACEML_SCRIPT_PATH": __file__, "TRACEML_SESSION_ID": "side_by_side",
        "TRACEML_LOGS_DIR": str(tools.folder / "traceml"),
        "TRACEML_AGGREGATOR_PORT": str(tools.port),
        "TRACEML_EXPECTED_WORLD_SIZE": str(dist.get_world_size()),
    })  # fmt: skip
    traceml_ai: Any = import_module("traceml_ai")
    executor: Any = import_module("traceml_ai.runtime.executor")
    optimizer_hooks: Any = import_module("traceml_ai.instrumentation.hooks.optimizer_hooks")
    aggregator = Path(traceml_ai.__file__).parent / "aggregator" / "aggregator_main.py"
    command = [sys.executable, str(aggregator)]
    ready = partial(socket.create_connection, ("127.0.0.1", tools.port))
    with tools.beside(command, {"PYTHONPATH": str(OTHERS)}, ready):
        runtime = executor.start_runtime(executor.read_traceml_env())
        assert isinstance(runtime, executor.TraceMLRuntime), "it starts without, if it must"
        traceml_ai.init(mode="auto")
        if (theirs := tools.patched) is None:
            theirs = tools.patched = [getattr(owner, name) for owner, name in _traced(torch)]
        _put(torch, theirs)
        dist.barrier()
        try:
            yield
        finally:
            executor.stop_runtime(runtime)
            optimizer_hooks.reset_optimizer_timing()
            _put(torch, own)


def _traced(torch: Any) -> list[tuple[Any, str]]:
    return [
        (torch.nn.Module, "__call__"), (torch.Tensor, "backward"), (torch.autograd, "backward"),
        (torch.Tensor, "to"),
    ]  # fmt: skip


def _put(torch: Any, functions: list[Any]) -> None:
    for (owner, name), function in zip(_traced(torch), functions, strict=True):
        setattr(owner, name, function)


def _trace_step(tools: Tools) -> contextlib.AbstractContextManager[object]:
    trace_step: Any = import_module("traceml_ai").trace_step
    traced: contextlib.AbstractContextManager[object] = trace_step(tools.model)
    return traced


def _detail(tools: Tools) -> contextlib.AbstractContextManager[object]:
    return tools.debug_level(tools.dist.DebugLevel.DETAIL)


def _wait(until: Callable[[], object]) -> None:
    """Waits until the call returns something; OSError is nothing."""
    began = time.monotonic()
    while time.monotonic() - began < START_S:
        with contextlib.suppress(OSError):
            if until():
                return
        time.sleep(0.05)
    raise TimeoutError(f"not ready within {START_S:.0f} s")


DETAIL: Final = "TORCH_DISTRIBUTED_DEBUG=DETAIL"
_ENTERED: Final[dict[str, Way]] = {
    "nothing": lambda _: contextlib.nullcontext(),
    "frtop": _recorder,
    "frtop, native kernels": _recorder,
    "frtop, phases": lambda tools: _recorder(tools, phases=True),
    "frtop, modules": _recorder,
    "frtop, all values sampled": _numbers,
    "synchronising wrapper": _wrapper,
    "CommDebugMode": lambda _: contextlib.nullcontext(),
    "torch.profiler": _profiler,
    DETAIL: _detail,
    "nothing, long": lambda _: contextlib.nullcontext(),
    "frtop, native kernels, agent, long": _with_agent,
    "TraceML, long": _traceml,
    "py-spy record, 100 Hz, long": _sampled,
    "debug server, long": _debug_server,
    "debug server, asked at 1 Hz, long": lambda tools: _debug_server(tools, asked=True),
}
_OF_EACH_STEP: Final[dict[str, Way]] = {"CommDebugMode": _comm_debug, "TraceML, long": _trace_step}
"""What is entered again for each step."""
QUIET: Final = {"TORCH_CPP_LOG_LEVEL": "ERROR", "TORCH_LOGS": "-torch.distributed.debug"}
"""It prints a line for each request."""
WAYS: Final[dict[str, dict[str, str]]] = {
    **{way: {} for way in _ENTERED},
    "frtop, native kernels": gloo_job.KERNELS["native"],
    "frtop, modules": {"FRTOP_MODULES": "1"},
    DETAIL: {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    "frtop, native kernels, agent, long": gloo_job.KERNELS["native"],
    "debug server, long": QUIET,
    "debug server, asked at 1 Hz, long": QUIET,
}
"""Each way, with the environment variables that it needs."""
LONG: Final = frozenset(way for way in WAYS if way.endswith("long"))
NEEDED: Final = {
    "TraceML, long": ("traceml-ai",),
    "debug server, long": ("jinja2", "tabulate", "aiohttp"),
    "debug server, asked at 1 Hz, long": ("jinja2", "tabulate", "aiohttp"),
}
SHOWN: Final = ("traceml-ai", "py-spy")
"""Whose versions are printed."""
OTHERS: Final = gloo_job.CACHE / "others"
"""Has what only other tools need, so that it cannot meet what frtop needs: last on the path, and
for these ways alone."""
INSTALL: Final = "pip install --target .bench-cache/others traceml-ai jinja2 tabulate aiohttp"
WITH_US: Final = ("setpriv", "--pdeathsig", "KILL", "--")
"""What a rank starts ends with it, however that ends."""


def measure(kind: str, way: str) -> Measured:
    """Runs one rank."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if way in NEEDED:
        sys.path.append(str(OTHERS))
    tools = Tools(way)
    plain = _maker(kind, tools, tools.plain)
    with _ENTERED[way](tools) if way == DETAIL else contextlib.nullcontext():
        seen = plain if tools.checked is tools.plain else _maker(kind, tools, tools.checked)
    ops = _ops_of(tools, plain)
    took: dict[bool, list[float]] = {True: [], False: []}
    steps = _long_block(tools, plain) if way in LONG else STEPS
    began = time.monotonic()
    for pair in range(-1, MAX_PAIRS):
        first = bool(pair % 2)  # the first of a pair inherits what the last block left behind
        for on in (first, not first):
            entered = _ENTERED[way](tools) if on else contextlib.nullcontext()
            dist.barrier()  # no rank issues ops while another one changes over
            each = _OF_EACH_STEP.get(way) if on else None
            with entered:
                found = _block(seen if on else plain, each and partial(each, tools), steps)
            if pair >= 0:
                took[on].append(found)
        late = torch.tensor(float(time.monotonic() - began > MEASURE_S))
        dist.all_reduce(late)
        if late and pair >= MIN_PAIRS:
            break
    dist.barrier()
    dist.destroy_process_group()
    return Measured((took[True], took[False]), ops)


def _long_block(tools: Tools, step: Step) -> int:
    """Returns how many steps take LONG_S; the same on all ranks."""
    took_ms = tools.torch.tensor(_block(step, None, STEPS))
    tools.dist.all_reduce(took_ms, tools.dist.ReduceOp.MAX)
    return max(STEPS, round(1000 * LONG_S / float(took_ms)))


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
    tools.model = model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    given = torch.ones(16, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(given).square().mean().backward()
        optimizer.step()

    return step


def _block(step: Step, entered: Entered | None, steps: int) -> float:
    """Returns the wall time of the median step, in ms, of a long block that of the mean step.

    `entered` is entered for each step.
    """
    times = []
    for number in range(WARM_STEPS + steps):
        began = time.perf_counter()
        with contextlib.nullcontext() if entered is None else entered():
            step()
        if number >= WARM_STEPS:
            times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times) if steps == STEPS else statistics.fmean(times)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        gloo_job.report(asdict(measure(*sys.argv[1:3])))
    else:
        main()
