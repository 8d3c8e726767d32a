"""The cost of marks: how much longer fetches, optimizer steps and phases take with the recorder.

Processes without and with the recorder alternate, with phases on. The timed code itself does next
to nothing. The fastest block counts, because other load on the machine only adds time.
"""

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
"""The budget of a mark. A step has a fetch, three phases and its own end."""
BUDGET_MS: Final = 1.0
SLEEPS: Final = 100
SLEEPS_S: Final = (0.001, 0.005, 0.02)
MARKS: Final = {
    "fetch of a DataLoader": 1,
    "step of an optimizer, and of the training": 2,
    "the same, with samples": 2,
    "backward": 1,
    "forward of a module": 1,
    "forward of a module with ten inside": 1,
    "module in an evaluation": 0,
}
BESIDES: Final = "the same, with samples", "forward of a module with ten inside"
"""Not part of the step that is summed up."""


def main() -> None:
    """Prints medians without and with the recorder, in µs, and the difference."""
    pooled = alternate(_child, ("bare", "with"), ROUNDS)
    print(f"marks, µs per call, one process, phases on (budget {BUDGET_US:+.0f} a mark)")
    print(f"{'call':<44}{'marks':>6}{'bare':>9}{'with':>9}{'added':>9}{'a mark':>9}")
    total = 0.0
    for name, found in pooled.items():
        bare, ours = min(found["bare"]), min(found["with"])
        added, marks = ours - bare, MARKS[name]
        total += added if marks and name not in BESIDES else 0
        each = f"{added / marks:>+9.1f}" if marks else ""
        print(f"{name:<44}{marks:>6}{bare:>9.1f}{ours:>9.1f}{added:>+9.1f}{each}")
    print(f"a training step with one of each: {total:+.1f} µs")
    print(f"how much longer a mark is than the sleep in it, ms (budget {BUDGET_MS:.0f} ms)")
    print(f"{'mark':<44}{'marks':>6}{'median':>9}{'worst':>9}")
    for name, longer in _child("sleeps").items():
        print(f"{name:<44}{len(longer):>6}{statistics.median(longer):>9.3f}{max(longer):>9.3f}")


def _child(mode: str) -> dict[str, list[float]]:
    (printed,) = run("bench.mark_cost", mode, ranks=1, variables={"FRTOP_PHASES": "1"})
    found: dict[str, list[float]] = json.loads(printed)
    return found


def measure(mode: str) -> dict[str, list[float]]:
    """Runs in a child; returns the median of each block in µs."""
    torch = begin_fake_rank(recorder=mode != "bare")
    if mode == "sleeps":
        return _sleeps(torch)
    calls = _calls(torch)
    backward = calls["backward"]
    return {name: [_block(call, backward) for _ in range(BLOCKS)] for name, call in calls.items()}


def _calls(torch: Any) -> dict[str, Callable[[], object]]:
    import frtop_probe  # noqa: PLC0415

    class Nothing(torch.optim.Optimizer):  # type: ignore[misc]
        def step(self, closure: object = None) -> None:
            pass

    weight = torch.ones(1, requires_grad=True)
    optimizer, other = (Nothing([weight], {}) for _ in range(2))
    net = torch.nn.Identity()
    ten = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(10)))
    given = torch.ones(1, 1)
    loader = torch.utils.data.DataLoader(range(10**9), batch_size=None)
    batches = iter(loader)
    scaled = weight.sum()

    def step_with_samples() -> None:
        other.step()
        frtop_probe.step(samples=32)

    def evaluation() -> object:
        with torch.no_grad():
            return net(given)

    return {
        "fetch of a DataLoader": lambda: next(batches),
        "step of an optimizer, and of the training": optimizer.step,
        "the same, with samples": step_with_samples,
        "backward": lambda: scaled.backward(retain_graph=True),
        "forward of a module": lambda: net(given),
        "forward of a module with ten inside": lambda: ten(given),
        "module in an evaluation": evaluation,
    }


def _sleeps(torch: Any) -> dict[str, list[float]]:  # noqa: C901
    """Sleeps for known times in each kind of mark; returns how many ms longer the marks are."""
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415
    from frtop_probe.ring.marks import read_marks  # noqa: PLC0415
    from frtop_probe.ring.reader import Ring  # noqa: PLC0415

    slept: dict[str, list[int]] = {"fetch": [], "forward": [], "backward": [], "optimizer": []}

    def sleep(kind: str) -> None:
        began = time.monotonic_ns()
        time.sleep(SLEEPS_S[len(slept[kind]) % len(SLEEPS_S)])
        slept[kind].append(time.monotonic_ns() - began)

    class Slow(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return SLEEPS

        def __getitem__(self, place: int) -> Any:
            sleep("fetch")
            return torch.ones(1)

    class Slowly(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(_: Any, given: Any) -> Any:
            sleep("forward")
            return given.clone()

        @staticmethod
        def backward(_: Any, given: Any) -> Any:
            sleep("backward")
            return given

    class Net(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, given: Any) -> Any:
            return Slowly.apply(super().forward(given))

    class SlowSGD(torch.optim.SGD):  # type: ignore[misc]
        def step(self, closure: Any = None) -> Any:
            sleep("optimizer")
            return super().step(closure)

    model = torch.nn.parallel.DistributedDataParallel(Net(1, 1))
    optimizer = SlowSGD(model.parameters(), lr=0.1)
    for batch in torch.utils.data.DataLoader(Slow(), batch_size=None):
        with model.no_sync():  # the fake backend returns no gradients
            model(batch).sum().backward()
        optimizer.step()
    assert lifecycle.recorder is not None
    found: dict[str, list[float]] = {}
    for row in read_marks(Ring(lifecycle.recorder.ring.path)):
        name = row.kind.name.lower()
        longer = found.setdefault(name, [])
        if len(longer) < len(slept.get(name, ())):
            longer.append((row.end_ns - row.begin_ns - slept[name][len(longer)]) / 1e6)
    return {name: found[name] for name in slept}


def _block(call: Callable[[], object], backward: Callable[[], object]) -> float:
    """Also runs a backward now and then: forwards without any are no training, and have no mark."""
    clock = time.perf_counter_ns
    for _ in range(50):
        call()
    samples = []
    for number in range(CALLS):
        if number % 100 == 0:
            backward()
        begin = clock()
        call()
        samples.append((clock() - begin) / 1000)
    return statistics.median(samples)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
